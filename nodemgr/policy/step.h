#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nodemgr/policy/decision.h"
#include "nodemgr/policy/event.h"
#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr::policy {

struct StepResult {
  std::vector<Decision> decisions;
  /// When to step again though nothing happens; kNever: only on an event.
  Instant wake_at = kNever;
};

/// The whole policy: applies what happened, then decides who gets which GPU and which bytes leave.
///
/// Deterministic: the same state, events, time and seed give the same decisions; `seed` only
/// spreads back-offs. The caller carries out every decision and reports back by events. `now` never
/// goes backwards between calls.
///
/// Always holds (docs/architecture.md): a GPU has at most one holder; a lease over several GPUs
/// comes all or not at all; a gang that asks for more than it holds gives back first; an exclusive
/// holder is never withdrawn; memory leaves only gangs without a lease, and none gets one before it
/// has left.
StepResult step(State& state, std::span<const Event> events, Instant now, std::uint64_t seed);

}  // namespace plexrl::nodemgr::policy
