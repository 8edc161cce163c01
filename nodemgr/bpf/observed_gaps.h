#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "nodemgr/bpf/blame.h"
#include "nodemgr/bpf/gap_probe.h"

namespace plexrl::observer {

/// What is to be told of a gap.
struct GapReport {
  std::uint64_t gap = 0;
  bool is_final = false;
  std::chrono::nanoseconds observed{0};  ///< for so long
  std::vector<Cause> causes;
};

/// The gaps that are going on: when they are looked at, and what they are due to. One thread.
class ObservedGaps {
 public:
  using Instant = std::chrono::nanoseconds;  ///< since boot

  explicit ObservedGaps(GapProbe& probe) : probe_(probe) {}

  /// A gap of a gang with these processes. Its number is the manager's.
  [[nodiscard]] absl::Status begin(std::uint64_t gap, std::vector<pid_t> processes, Instant now);
  /// It is over, and `thread` (0: not known) has ended it. None: that gap is not observed.
  std::optional<GapReport> end(std::uint64_t gap, pid_t thread, Instant now);
  /// Those of which something is due to be told meanwhile; detaches when there was no gap for a
  /// while.
  std::vector<GapReport> advance(Instant now);
  /// When `advance` has something to do.
  std::optional<Instant> next() const;
  /// The manager has gone.
  void forget_all();

 private:
  struct Gap {
    std::vector<pid_t> processes;
    Instant since{0}, tell_at{0};
    int told = 0;
  };
  pid_t expected_ender(const Gap& gap) const;
  static std::string command_of(pid_t process);

  GapProbe& probe_;
  std::map<std::uint64_t, Gap> gaps_;
  std::map<pid_t, pid_t> last_enders_;  ///< by process: the thread that ended its last gap
  std::optional<Instant> rest_at_;
};

}  // namespace plexrl::observer
