#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "nodemgr/bpf/thread_times.h"

/// From what the threads of a gang did in a gap to what the gap is due to.
namespace plexrl::observer {

/// A part of a gap: `time` of it went into this.
struct Cause {
  Kind kind = Kind::kOther;
  std::string detail;  ///< "" when there is none
  std::chrono::nanoseconds time{0};

  friend bool operator==(const Cause&, const Cause&) = default;
};

/// The causes of a gap, the largest first; their times together are `length`, or less where threads
/// were seen for less. None when nothing was seen.
///
/// One thread ends a gap: the one that gives the GPU work again. Where it is known (`ender`), what
/// it did counts, alone. Else all threads count alike, except those that can't have: threads that
/// did not run once while others did (a pool's workers that nobody had work for), and threads that
/// are PlexRL's or the driver's own. A wait for a lock that another thread of the process ended is
/// put down to what that thread did, as far as that was no lock.
///
/// `command_of`: the command of a process, "" if it is not known; for the other end of pipes.
std::vector<Cause> blame(const std::vector<ThreadTimes>& threads, std::chrono::nanoseconds length,
                         pid_t ender, const std::function<std::string(pid_t)>& command_of);

}  // namespace plexrl::observer
