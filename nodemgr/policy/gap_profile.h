#pragma once

#include <map>
#include <utility>

#include "nodemgr/policy/durations.h"

namespace plexrl::nodemgr::policy {

/// What a gang's gaps have been like, and what precedes which.
///
/// An RL step repeats itself: rollout, a gap for the rewards, training, a gap for the weights. So
/// the burst before a gap, and the gap before that burst, tell much of how long this gap will be.
/// Gaps are kept by the lengths of these two (in classes of a factor of four), by the burst alone,
/// and all together; the closest of these that has seen enough answers.
class GapProfile {
 public:
  /// Lengths in classes of a factor of four, 1 ms and less first.
  using Class = int;
  static constexpr Class kLastClass = 32;
  struct Tables {
    Durations all;
    Durations bursts;
    std::map<Class, Durations> by_burst;
    std::map<std::pair<Class, Class>, Durations> by_gap_and_burst;
  };

  GapProfile() = default;
  explicit GapProfile(Tables tables) : tables_(std::move(tables)) {}
  const Tables& tables() const { return tables_; }

  /// What a new run begins with: the same, but soon outweighed by what it shows itself.
  GapProfile remembered() const;

  /// A gap of `gap` has ended; before it there was a burst of `burst`, and before that the gap
  /// that this was told of last.
  void add(Duration burst, Duration gap);

  /// The gaps that came after bursts like `burst` at this point of the sequence; null where fewer
  /// than three were seen, even of all gaps together. Lives until the next `add`.
  const Durations* after(Duration burst) const;

  const Durations& gaps() const { return tables_.all; }
  const Durations& bursts() const { return tables_.bursts; }

 private:
  static Class class_of(Duration duration);

  Tables tables_;
  Class last_gap_ = -1;
};

/// How long into a gap to give the GPU away, where doing so costs `cost` of its time (switching)
/// and keeping it costs the idle time: the choice that wastes the least on
/// average over gaps such as `gaps`, given that this one has already lasted `earliest`; never
/// before that.
///
/// Where no gaps are known (null), and beyond the longest that is known, it is when the time idled
/// equals the cost: at most twice what one who knows the future would waste (ski rental).
Duration best_release(const Durations* gaps, Duration earliest, Duration cost);

}  // namespace plexrl::nodemgr::policy
