#pragma once

#include <vector>

#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr::policy {

/// How long the gang may wait in one stretch.
Duration wait_bound(const State& state, const Gang& gang);

/// When its wait comes so near to the bound that holders are withdrawn for it before their quantum.
Instant urgent_at(const State& state, const Gang& gang);

/// How much slower than alone the gang has been since it first wanted a GPU: all of that time over
/// what it did not spend waiting for a lease or for its memory. 1 when it never waited.
double slowdown(const Gang& gang, Instant now);

/// How much longer the gang may be kept waiting before its owner's bound on the slowdown is broken:
/// negative when it is; kNever without such a bound.
Duration slowdown_allowance(const Gang& gang, Instant now);

/// (wait + service) / (service + switch): how long this wait is, against the burst that the gang
/// usually asks for and the cost of bringing it in.
double response_ratio(const State& state, const Gang& gang, Instant now);

/// The gangs that wait for a lease (or for more GPUs than theirs covers), first to be served first:
/// 1. those that are exiting; 2. those near their bound, by deadline; 3. those slower than their
/// owner allows; then by priority; among equals those that have not had more than their share
/// (share.h) before those that have; and last by response ratio. Paused gangs are not among them.
std::vector<Gang*> waiting_in_order(State& state, Instant now);

}  // namespace plexrl::nodemgr::policy
