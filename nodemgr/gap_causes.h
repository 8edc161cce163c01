#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace plexrl::nodemgr {

/// A part of a gap, as plexrl-observer tells it: for `time` the gang did this.
struct GapCause {
  std::string cause;   ///< a word of docs/contract.md, "gap causes"
  std::string detail;  ///< address and port, command, file, thread; "": none
  std::chrono::nanoseconds time{0};
};
/// The largest first.
using GapCauses = std::vector<GapCause>;

/// The word that most of the gap goes to, all its details together; "" when there are no causes.
inline std::string main_cause(const GapCauses& causes) {
  std::map<std::string, std::chrono::nanoseconds> sums;
  for (const GapCause& cause : causes) sums[cause.cause] += cause.time;
  std::string found;
  std::chrono::nanoseconds most{0};
  for (const auto& [word, time] : sums) {
    if (time <= most) continue;
    most = time;
    found = word;
  }
  return found;
}

/// Is told by SwitchLog of the gaps of gangs. Times are boot time.
class GapWatcher {
 public:
  using Instant = std::chrono::nanoseconds;
  virtual ~GapWatcher() = default;
  virtual void gap_began(std::uint64_t gang, Instant since) = 0;
  /// True: its causes will come, or that they won't (SwitchLog::explain, give_up_causes).
  virtual bool gap_ended(std::uint64_t gang, Instant since) = 0;
};

}  // namespace plexrl::nodemgr
