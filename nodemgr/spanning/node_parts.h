#pragma once

#include <functional>
#include <map>
#include <string>

#include "nodemgr/spanning/part.h"

namespace plexrl::nodemgr::spanning {

/// All parts of a node, and its side of the messages. Reads no clock.
class NodeParts {
 public:
  NodeParts(std::string node, std::uint64_t boot, const PartConfig& config)
      : node_(std::move(node)), boot_(boot), config_(config) {}

  void add(const std::string& job, int nodes, Instant now) {
    parts_.try_emplace(job, job, nodes, config_, now);
  }
  void remove(const std::string& job) { parts_.erase(job); }
  Part* find(const std::string& job) {
    const auto it = parts_.find(job);
    return it == parts_.end() ? nullptr : &it->second;
  }
  std::map<std::string, Part>& all() { return parts_; }
  const std::map<std::string, Part>& all() const { return parts_; }

  /// False: they are for another start of the node manager, or late, and nothing changes.
  bool hear(const NodeOrders& orders, Instant now);
  NodeReport report(const std::function<PartState(const std::string& job)>& state_of, Instant now);

 private:
  std::string node_;
  std::uint64_t boot_;
  PartConfig config_;
  std::map<std::string, Part> parts_;
  std::uint64_t reports_ = 0;
  std::uint64_t generation_ = 0, number_ = 0;  ///< of the last orders
};

}  // namespace plexrl::nodemgr::spanning
