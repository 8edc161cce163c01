#include "nodemgr/policy/order.h"

#include <algorithm>
#include <compare>
#include <utility>

#include "nodemgr/policy/cost.h"
#include "nodemgr/policy/share.h"

namespace plexrl::nodemgr::policy {

Duration wait_bound(const State& state, const Gang& gang) {
  return gang.max_wait > Duration{0} ? gang.max_wait : state.config.max_wait;
}

Instant urgent_at(const State& state, const Gang& gang) {
  Duration bound = wait_bound(state, gang);
  // Leave room for one drain and the load, and for a few that are just as urgent.
  Duration needed = state.config.drain_budget + 2 * load_cost(state, gang);
  Duration margin = std::clamp(needed, bound / 4, bound / 2);
  return gang.want_since + bound - margin;
}

namespace {

/// Wait so far of a gang that is not running, its load included.
Duration waiting_now(const Gang& gang, Instant now) {
  if (gang.phase == Phase::kWaiting) return now - gang.want_since;
  if (gang.phase == Phase::kLoading) return now - gang.loading_since;
  return Duration{0};
}

Duration elapsed(const Gang& gang, Instant now) {
  return gang.first_wanted == kNever ? Duration{0} : now - gang.first_wanted;
}

}  // namespace

double slowdown(const Gang& gang, Instant now) {
  const Duration all = elapsed(gang, now);
  const Duration alone = all - gang.waited - waiting_now(gang, now);
  if (alone <= Duration{0}) return 1;
  return static_cast<double>(all.count()) / static_cast<double>(alone.count());
}

Duration slowdown_allowance(const Gang& gang, Instant now) {
  if (gang.max_slowdown <= 1) return kNever;
  const Duration lost = gang.waited + waiting_now(gang, now);
  const double alone = static_cast<double>((elapsed(gang, now) - lost).count());
  return Duration(static_cast<std::int64_t>(alone * (gang.max_slowdown - 1))) - lost;
}

double response_ratio(const State& state, const Gang& gang, Instant now) {
  const Duration usual = gang.profile.bursts().quantile(0.5);
  const double service = static_cast<double>(std::max(usual, state.config.min_quantum).count());
  const double wait = static_cast<double>(waiting_now(gang, now).count());
  return (wait + service) / (service + static_cast<double>(load_cost(state, gang).count()));
}

std::vector<Gang*> waiting_in_order(State& state, Instant now) {
  std::vector<Gang*> waiting;
  for (auto& [id, gang] : state.gangs) {
    if (gang.is_kept_paused() || gang.standing == Standing::kBarred ||
        gang.standing == Standing::kWithdrawn) {
      continue;
    }
    bool needs_more = (gang.gpus & ~gang.held) != 0;
    if (gang.phase == Phase::kWaiting || (gang.wants && gang.holds_lease() && needs_more)) {
      waiting.push_back(&gang);
    }
  }
  struct Key {
    int rank;
    Instant deadline;
    int by_priority;
    bool had_its_share;
    double by_ratio;
    Instant since;
    GangId id;
    auto operator<=>(const Key&) const = default;
  };
  auto key_of = [&](const Gang& gang) {
    const bool urgent = now >= urgent_at(state, gang);
    const bool too_slow = slowdown_allowance(gang, now) < Duration{0};
    Key key{};
    key.rank = gang.exiting || gang.comes_first() ? 0 : urgent ? 1 : too_slow ? 2 : 3;
    if (key.rank == 1) key.deadline = gang.want_since + wait_bound(state, gang);
    if (key.rank == 3) key.by_priority = -gang.priority;
    const double quantum_ns = static_cast<double>(state.config.min_quantum.count());
    for (const Gang* rival : waiting) {
      key.had_its_share |= ahead_ns(state, gang, *rival, now) > quantum_ns;
    }
    key.by_ratio = -response_ratio(state, gang, now);
    key.since = gang.want_since;
    key.id = gang.id;
    return key;
  };
  std::vector<std::pair<Key, Gang*>> keyed;
  keyed.reserve(waiting.size());
  for (Gang* gang : waiting) keyed.emplace_back(key_of(*gang), gang);
  std::sort(keyed.begin(), keyed.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < keyed.size(); ++i) waiting[i] = keyed[i].second;
  return waiting;
}

}  // namespace plexrl::nodemgr::policy
