#include "nodemgr/policy/withdrawal.h"

#include <algorithm>

#include "nodemgr/policy/cost.h"
#include "nodemgr/policy/order.h"
#include "nodemgr/policy/share.h"

namespace plexrl::nodemgr::policy {
namespace {

double as_figure(Duration duration) { return static_cast<double>(duration.count()); }

void earlier(Judgement& result, Instant at, const char* reason) {
  if (at >= result.at) return;
  result.at = at;
  result.reason = reason;
}

/// When the holder's gap is worth the switch for the waiter.
Instant gap_release_at(const State& state, const Gang& holder, const Gang& waiter, Instant now,
                       Judgement& result) {
  const Duration cost = gap_cost(state, holder, waiter);
  const Durations* gaps = holder.profile.after(holder.burst_before);
  // Idling was for nobody before there was a waiter.
  const Duration unwanted = waiter.want_since - holder.idle_since;
  const Duration earliest = std::max(state.config.grace, unwanted);
  const Duration so_far = now - holder.idle_since;
  result.figures.push_back({"gap_cost_ns", as_figure(cost)});
  result.figures.push_back({"gaps_known", gaps == nullptr ? 0 : gaps->weight()});
  if (gaps != nullptr) {
    result.figures.push_back({"expected_gap_ns", as_figure(so_far + gaps->mean_beyond(so_far))});
  }
  return holder.idle_since + best_release(gaps, earliest, cost);
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
  if (waiter.comes_first() && holder.is_in_step()) {
    result.reason = "holder's slot over several nodes is to end first";
    return result;
  }
  if (waiter.comes_first()) {
    result.at = holder.attempt_not_before;
    result.reason = "slot over several nodes";
    return result;
  }
  const bool may_come = waiter.is_kept_alone(now) || waiter.exiting || waiter.job == holder.job;
  if (holder.is_kept_alone(now) && !may_come) {
    result.at = holder.alone_until;
    result.reason = kKeptAlone;
    result.figures = {{"alone_ns", as_figure(holder.alone_until - now)}};
    return result;
  }
  Duration cost = switch_cost(state, holder, waiter);
  Duration held_for = quantum(state, cost);
  Duration bound = wait_bound(state, waiter);
  Duration level = until_level(state, holder, waiter, now);
  result.figures = {
      {"switch_cost_ns", as_figure(cost)},
      {"quantum_ns", as_figure(held_for)},
      {"ran_ns", as_figure(now - holder.turn_since)},
      {"idle_ns", holder.idle ? as_figure(now - holder.idle_since) : 0},
      {"waited_ns", as_figure(now - waiter.want_since)},
      {"wait_bound_ns", as_figure(bound)},
      {"behind_share_ns", as_figure(level)},
      {"response_ratio", response_ratio(state, waiter, now)},
      {"slowdown_ratio", slowdown(waiter, now)},
      {"failed_attempts", static_cast<double>(holder.failed_attempts)},
  };
  if (&holder == &waiter) {
    result.at = holder.attempt_not_before;
    result.reason = "asks for more GPUs than it holds";
    return result;
  }
  const Instant after_its_turn = holder.turn_since + std::min(held_for, bound / 8);
  const bool is_owed = slowdown_allowance(waiter, now) < Duration{0};
  // What coming back would cost the holder is more than its owner allows.
  const bool is_kept = slowdown_allowance(holder, now) < return_cost(state, waiter);
  if (is_kept) {
    result.reason = "holder is as slow as its owner allows";
  } else if (waiter.priority < holder.priority && !is_owed) {
    result.reason = "holder has the higher priority";
  } else {
    earlier(result, std::max(holder.turn_since + held_for, now + level), "quantum over");
  }
  if ((waiter.priority > holder.priority || is_owed) && !is_kept) {
    earlier(result, holder.granted_late ? after_its_turn : holder.turn_since,
            is_owed ? "waiter slower than its owner allows" : "waiter has the higher priority");
  }
  earlier(result, std::max(urgent_at(state, waiter), after_its_turn), "waiter near its bound");
  if (holder.idle && !is_kept) {
    const Instant at = gap_release_at(state, holder, waiter, now, result);
    if (at <= now || at < result.at) {
      result.at = at;
      result.reason = kHolderIdle;
    }
  }
  result.at = std::max(result.at, holder.attempt_not_before);
  return result;
}

}  // namespace plexrl::nodemgr::policy
