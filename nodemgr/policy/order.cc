#include "nodemgr/policy/order.h"

#include <algorithm>
#include <tuple>

#include "nodemgr/policy/cost.h"

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

double response_ratio(const Gang& gang, Instant now) {
  Duration waited = gang.waited;
  if (gang.phase == Phase::kWaiting) waited += now - gang.want_since;
  Duration served = gang.service;
  if (gang.phase == Phase::kRunning) served += now - gang.running_since;
  if (served <= Duration{0}) return 1;
  return static_cast<double>((waited + served).count()) / static_cast<double>(served.count());
}

std::vector<Gang*> waiting_in_order(State& state, Instant now) {
  std::vector<Gang*> waiting;
  for (auto& [id, gang] : state.gangs) {
    bool needs_more = (gang.gpus & ~gang.held) != 0;
    if (gang.phase == Phase::kWaiting || (gang.wants && gang.holds_lease() && needs_more)) {
      waiting.push_back(&gang);
    }
  }
  auto key = [&](const Gang* gang) {
    bool urgent = now >= urgent_at(state, *gang);
    int rank = gang->exiting ? 0 : urgent ? 1 : 2;
    int by_priority = rank == 2 ? -gang->priority : 0;
    Instant by_time = rank == 1 ? gang->want_since + wait_bound(state, *gang) : gang->want_since;
    return std::tuple(rank, by_priority, by_time, gang->id);
  };
  std::sort(waiting.begin(), waiting.end(),
            [&](const Gang* a, const Gang* b) { return key(a) < key(b); });
  return waiting;
}

}  // namespace plexrl::nodemgr::policy
