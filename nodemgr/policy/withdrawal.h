#pragma once

#include <string>
#include <vector>

#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr::policy {

/// When a holder may be withdrawn for a waiter.
struct Judgement {
  Instant at = kNever;  ///< from then on; kNever: not before something happens
  std::string reason;   ///< what makes it possible (or, with kNever, what stands in the way)
  std::vector<Figure> figures;
};

inline constexpr const char* kHolderIdle = "holder idle";

/// Rules, the earliest wins, none before the back-off of failed attempts has passed:
/// - `waiter` is `holder`: it asks for more GPUs, so it gives back first;
/// - the holder is in a gap, and this gap is worth its cost (cost.h), judged from its own gaps
/// (gap_profile.h); unless its owner's bound on the slowdown leaves no room for that;
/// - the waiter has the higher priority (or is slower than its owner allows): at the next cut;
/// - a busy holder has run its quantum, and its team or job has had as much of its share as the
///   waiter's; it is not cut for one of lower priority;
/// - the waiter is near its bound, and the holder has run an eighth of that bound (or its quantum).
/// A waiter that gets its GPUs before others (State, comes_first) has them as soon as the back-off
/// allows. Exclusive holders, and holders that still load, are not withdrawn.
Judgement judge_withdrawal(const State& state, const Gang& holder, const Gang& waiter, Instant now);

}  // namespace plexrl::nodemgr::policy
