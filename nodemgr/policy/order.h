#pragma once

#include <vector>

#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr::policy {

/// How long the gang may wait in one stretch.
Duration wait_bound(const State& state, const Gang& gang);

/// When its wait comes so near to the bound that holders are withdrawn for it before their quantum.
Instant urgent_at(const State& state, const Gang& gang);

/// (waited + served) / served: how much slower than alone, so far. 1 when it never ran.
double response_ratio(const Gang& gang, Instant now);

/// The gangs that wait for a lease (or for more GPUs than theirs covers), first to be served first:
/// those that are exiting, then those near their bound by deadline, then by priority, then by
/// longest wait.
std::vector<Gang*> waiting_in_order(State& state, Instant now);

}  // namespace plexrl::nodemgr::policy
