#pragma once

#include "nodemgr/policy/state.h"

/// What a switch is predicted to cost, from what switches on this node have cost.
namespace plexrl::nodemgr::policy {

/// What is given up and loaded into at a time, bytes: about a chunk of the pager's.
inline constexpr std::int64_t kExchangeUnit = 32 << 20;

/// Time to bring in what `gang` lacks on its GPUs (they load side by side).
Duration load_cost(const State& state, const Gang& gang);

/// Time from withdrawing `holder` until `newcomer` runs: drain, then evict as much as the newcomer
/// lacks room for while it loads.
Duration switch_cost(const State& state, const Gang& holder, const Gang& newcomer);

/// Time from withdrawing `newcomer`, once it runs, until the holder of before runs again.
Duration return_cost(const State& state, const Gang& newcomer);

/// What giving a gap of the holder to `newcomer` costs: the switch; and the way back, where the
/// newcomer is known to leave no gap of its own in which it would be taken.
Duration gap_cost(const State& state, const Gang& holder, const Gang& newcomer);

/// How long a busy holder runs before it is withdrawn for a newcomer.
Duration quantum(const State& state, Duration switch_cost);

/// Moves `average` an eighth of the way to `sample` (the first sample is taken as it is).
void learn(double& average, double sample);

}  // namespace plexrl::nodemgr::policy
