#pragma once

#include <cstdint>
#include <vector>

#include "nodemgr/policy/decision.h"
#include "nodemgr/policy/event.h"
#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr::policy {

/// Brings one event into the state, with the decisions that follow from it alone (an attempt that
/// succeeded revokes, one that failed reopens, a gang that has loaded runs).
void apply(State& state, const Event& event, Instant now, std::uint64_t seed,
           std::vector<Decision>& out);

/// Something was submitted or finished: it does not hang.
void unstick(Gang& gang);

/// The lease begins, but the gang can't run before its memory is there.
void load(Gang& gang, Instant now);

/// Pauses or resumes: time that was paused counts as neither waited for nor used.
void set_paused(State& state, Gang& gang, bool paused, Instant now);

/// The lease runs from now on.
void run(Gang& gang, Instant now);

/// Ends an attempt without success: the lease goes on, the next attempt backs off.
void end_attempt(State& state, Gang& gang, std::string reason, Instant now, std::uint64_t seed,
                 std::vector<Decision>& out);

}  // namespace plexrl::nodemgr::policy
