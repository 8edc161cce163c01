#pragma once

#include <cstdint>

#include "tools/run/scoped_fd.h"

namespace plexrl::run {

/// Tells whether a signal was sent to the whole process group or to plexrl-run alone.
///
/// The problem: the job runs in plexrl-run's process group, so what is sent to the group (Ctrl-C, a
/// shell's `kill %1`) reaches the job by itself and must not be forwarded, while what is sent to
/// plexrl-run alone (`kill PID`, a batch system) must be. siginfo_t says who sent a signal, not to
/// whom.
///
/// The witness is a small child in the same group that blocks all signals and counts as "seen" what
/// arrives. The kernel signals the members of a group from the newest to the oldest, so when
/// plexrl-run has a group's signal its witness has it already. The witness holds no file of
/// plexrl-run's and ends when plexrl-run does, however that ends.
class GroupWitness {
 public:
  /// Forks the witness. To be called with all signals blocked, and before threads are started.
  /// Without a process to be had there is no witness, and every signal counts as sent to us alone.
  GroupWitness();
  ~GroupWitness();
  GroupWitness(const GroupWitness&) = delete;
  GroupWitness& operator=(const GroupWitness&) = delete;

  /// The signals that the group was sent since the last call: bit n-1 for signal n.
  std::uint64_t take_seen();

 private:
  ScopedFd socket_;
  int pid_ = -1;
};

}  // namespace plexrl::run
