#pragma once

#include <map>
#include <utility>

#include "nodemgr/policy/types.h"

namespace plexrl::nodemgr::policy {

/// What is remembered of durations that were seen: how many there were of about each length.
///
/// Lengths fall into bins of a quarter of a power of two, from 0.1 ms on; each bin keeps the mean
/// of its samples, so a duration that always repeats is kept exactly. Every new sample makes the
/// older ones count 1/64 less: lengths that drift are followed within some sixty samples.
class Durations {
 public:
  struct Bin {
    double weight = 0;   ///< samples, decayed
    double mean_ns = 0;  ///< of these samples
  };

  static constexpr int kLastBin = 120;  ///< some thirty hours, and whatever is longer

  Durations() = default;
  /// From bins that were kept: numbers 0 to kLastBin, weights and means that are not negative.
  explicit Durations(std::map<int, Bin> bins) : bins_(std::move(bins)) {}

  void add(Duration sample);

  /// The same with all samples together counting at most `weight`.
  Durations limited_to(double weight) const;

  /// Samples that count, decayed: at most 64 however many there were.
  double weight() const;

  /// The length that a share `q` (0..1) of the samples does not exceed; 0 without samples.
  Duration quantile(double q) const;

  /// What is to be expected beyond `so_far`, of samples longer than that; 0 if there is none.
  Duration mean_beyond(Duration so_far) const;

  /// The same as a quantile: how much longer than `so_far` a share `q` of those longer than it
  /// last at most; 0 if there is none longer.
  Duration quantile_beyond(Duration so_far, double q) const;

  /// Bins by number, the shorter durations first.
  const std::map<int, Bin>& bins() const { return bins_; }

 private:
  std::map<int, Bin> bins_;
};

}  // namespace plexrl::nodemgr::policy
