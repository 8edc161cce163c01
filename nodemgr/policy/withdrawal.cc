#include "nodemgr/policy/withdrawal.h"

#include <algorithm>

#include "nodemgr/policy/cost.h"
#include "nodemgr/policy/order.h"

namespace plexrl::nodemgr::policy {
namespace {

double as_figure(Duration duration) { return static_cast<double>(duration.count()); }

/// Idle release: when the gap has become worth a switch.
Instant idle_release_at(const Config& config, const Gang& holder, Duration cost) {
  double share = std::clamp(config.switch_share, 0.01, 1.0);
  Duration earn(static_cast<std::int64_t>(as_figure(cost) * (1 - share) / share));
  return std::max(holder.idle_since + config.grace,
                  std::min(holder.running_since + earn, holder.idle_since + cost));
}

}  // namespace

Judgement judge_withdrawal(const State& state, const Gang& holder, const Gang& waiter,
                           Instant now) {
  Judgement result;
  if (holder.exclusive) {
    result.reason = "holder is exclusive";
    return result;
  }
  if (holder.phase != Phase::kRunning) {
    result.reason = "holder is loading";
    return result;
  }
  Duration cost = switch_cost(state, holder, waiter);
  Duration held_for = quantum(state, cost);
  Duration bound = wait_bound(state, waiter);
  result.figures = {
      {"switch_cost_ns", as_figure(cost)},
      {"quantum_ns", as_figure(held_for)},
      {"ran_ns", as_figure(now - holder.running_since)},
      {"idle_ns", holder.idle ? as_figure(now - holder.idle_since) : 0},
      {"expected_gap_ns", holder.gap_ns},
      {"waited_ns", as_figure(now - waiter.want_since)},
      {"wait_bound_ns", as_figure(bound)},
      {"response_ratio", response_ratio(waiter, now)},
      {"failed_attempts", static_cast<double>(holder.failed_attempts)},
  };
  if (&holder == &waiter) {
    result.at = holder.attempt_not_before;
    result.reason = "asks for more GPUs than it holds";
    return result;
  }
  result.at = holder.running_since + held_for;
  result.reason = "quantum over";
  Instant for_bound =
      std::max(urgent_at(state, waiter), holder.running_since + std::min(held_for, bound / 8));
  if (for_bound < result.at) {
    result.at = for_bound;
    result.reason = "waiter near its bound";
  }
  if (holder.idle) {
    Instant for_idle = idle_release_at(state.config, holder, cost);
    if (for_idle <= now || for_idle < result.at) {
      result.at = for_idle;
      result.reason = "holder idle";
    }
  }
  result.at = std::max(result.at, holder.attempt_not_before);
  return result;
}

}  // namespace plexrl::nodemgr::policy
