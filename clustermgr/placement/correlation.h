#pragma once

#include <span>

#include "clustermgr/placement/types.h"

namespace plexrl::clustermgr::placement {

/// How busy times of two gangs lie to each other if neither waits for the other (open loop).
struct Correlation {
  double duty_a = 0;
  double duty_b = 0;
  double best_overlap = 0;  ///< share of time both are busy, at the lag that makes it least
  double best_lag_s = 0;    ///< shift of b
  double mean_overlap = 0;  ///< over all lags; duty_a · duty_b when lags are equally likely
  double phi_at_best = 0;   ///< phi coefficient (-1..1) at that lag
};

/// Over the time that both records cover, in bins of `bin` (0.5 to 1 s is right for steps of
/// minutes). All zero when they cover no common length.
Correlation correlate(std::span<const Burst> a, std::span<const Burst> b, Duration bin);

}  // namespace plexrl::clustermgr::placement
