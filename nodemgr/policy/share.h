#pragma once

#include "nodemgr/policy/state.h"

/// Weighted fair shares between teams, and between the jobs of a team.
///
/// Each has a virtual time: GPU time served, divided by its weight. Who has the least has had the
/// least of its share. One that comes back after a pause starts from the least of those that
/// compete: time it did not want is not owed to it.
namespace plexrl::nodemgr::policy {

/// Adds `served` time on `gpus` GPUs to what the gang's job and team have had.
void charge(State& state, const Gang& gang, Duration served, int gpus);

/// Before the gang begins to compete: it is about to want a lease, after a time without one.
void enter_competition(State& state, const Gang& gang, Instant now);

/// How far the virtual times of two gangs' owners are apart, in ns: of their teams where these
/// differ, else of their jobs. Positive: `a` has had more of its share than `b`. The service of
/// leases that are running up to `now` is included.
double ahead_ns(const State& state, const Gang& a, const Gang& b, Instant now);

/// How long `holder` has to go on for its owner to have had as much of its share as the waiter's;
/// 0 if it has already.
Duration until_level(const State& state, const Gang& holder, const Gang& waiter, Instant now);

}  // namespace plexrl::nodemgr::policy
