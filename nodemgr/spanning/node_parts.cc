#include "nodemgr/spanning/node_parts.h"

#include <tuple>

namespace plexrl::nodemgr::spanning {

bool NodeParts::hear(const NodeOrders& orders, Instant now) {
  if (orders.boot != boot_) return false;
  if (std::tie(orders.generation, orders.number) <= std::tie(generation_, number_)) return false;
  generation_ = orders.generation;
  number_ = orders.number;
  for (const Order& order : orders.orders) {
    if (Part* const part = find(order.job)) part->hear(order, now);
  }
  return true;
}

NodeReport NodeParts::report(const std::function<PartState(const std::string& job)>& state_of,
                             Instant now) {
  NodeReport report;
  report.node = node_;
  report.boot = boot_;
  report.number = ++reports_;
  for (auto& [job, part] : parts_) {
    const PartState state = state_of(job);
    part.look(state, now);
    report.parts.push_back(part.report(state));
  }
  return report;
}

}  // namespace plexrl::nodemgr::spanning
