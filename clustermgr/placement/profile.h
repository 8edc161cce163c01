#pragma once

#include <vector>

#include "clustermgr/placement/types.h"

namespace plexrl::clustermgr::placement {

/// What the bursts of a gang amount to, while it is alone or shares (waits for a lease are taken
/// out). Seconds.
struct GangShape {
  double work_s = 0;     ///< mean work per round
  double bursts = 0;     ///< mean number of bursts per round
  double longest_s = 0;  ///< longest burst
};

/// What the records of a job amount to. A round is the time between two bursts of the gang that
/// has the fewest: a step, for reinforcement learning.
struct JobShape {
  bool known = false;    ///< enough was recorded
  double period_s = 0;   ///< mean round, without waits for leases
  double period_cv = 0;  ///< coefficient of variation of rounds
  int rounds = 0;
  std::vector<GangShape> gangs;

  double duty(std::size_t gang) const { return period_s > 0 ? gangs[gang].work_s / period_s : 1.0; }
};

/// From recorded bursts; where there are too few, from what its gangs have been like on the whole.
JobShape shape_of(const JobProfile& job);

/// For how many rounds two jobs keep their lag, if their periods differ and jitter: phases drift
/// once round in T²/|dT|, and jitter moves them by a quarter of a period in (0.25/cv)² rounds.
double lag_stable_rounds(const JobShape& a, const JobShape& b);

}  // namespace plexrl::clustermgr::placement
