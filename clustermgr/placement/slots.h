#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "clustermgr/placement/predictor.h"
#include "clustermgr/placement/types.h"

namespace plexrl::clustermgr::placement {

struct NodeInfo {
  NodeId id{};
  std::string name;
  std::string pool;
  int gpus = 8;
  std::int64_t hbm_bytes = 80'000'000'000;  ///< usable per GPU
  std::int64_t tier_bytes = 0;      ///< host and disk for what is paged out, slack taken off
  std::string owner;                ///< team that the node belongs to; empty: everybody's
  double owner_max_slowdown = 1e9;  ///< no sharing may slow down the owner's jobs more
  bool draining = false;            ///< takes nothing new
};

/// GPUs that gangs take turns on. A gang bigger than a node has a slot over several whole nodes.
struct Slot {
  std::string pool;
  int gpus = 0;
  std::vector<std::pair<NodeId, int>> parts;   ///< GPUs by node
  std::vector<std::pair<JobId, int>> members;  ///< gang index of each
  bool open = false;
  double load = 0;  ///< sum over members of work over the longest step time they accept
};

/// Nodes, the slots on them, and who is in which. Knows what fits; predicts nothing.
class Slots {
 public:
  void add_node(NodeInfo node);
  void set_draining(NodeId node, bool draining) { nodes_.at(node).info.draining = draining; }
  /// Free GPUs of a pool, on nodes that take new work.
  int free_gpus(const std::string& pool) const;

  /// A slot over free GPUs for this gang: on the node with the least room that is enough, or over
  /// the fewest whole nodes. False when there is none.
  bool can_open(const GangProfile& gang) const { return !find_parts(gang).empty(); }
  /// Where `open` would open it, GPUs by node; empty: nowhere.
  std::vector<std::pair<NodeId, int>> find_parts(const GangProfile& gang) const;
  /// Opens it. can_open must hold.
  SlotId open(const GangProfile& gang) { return open_at(gang.pool, find_parts(gang)); }
  /// A slot over these GPUs, free by our count or not.
  SlotId open_at(const std::string& pool, std::vector<std::pair<NodeId, int>> parts);
  void close(SlotId slot);

  void join(SlotId slot, JobId job, int gang, const GangProfile& profile, double load);
  /// Closes the slot when it was the last one.
  void leave(SlotId slot, JobId job, int gang, const GangProfile& profile, double load);

  void add_load(SlotId slot, double load) { slots_[static_cast<std::size_t>(slot)].load += load; }

  /// Empty, or why the gang can't join (size, pool, exclusive, memory on the GPUs or in the tiers).
  std::string obstacle(SlotId slot, const GangProfile& gang) const;

  const Slot& at(SlotId slot) const { return slots_[static_cast<std::size_t>(slot)]; }
  const NodeInfo& node(NodeId id) const { return nodes_.at(id).info; }
  /// All that exist; closed ones have `open` false.
  const std::vector<Slot>& all() const { return slots_; }
  int open_gpus() const { return open_gpus_; }

 private:
  struct Node {
    NodeInfo info;
    int free = 0;
    std::int64_t promised_bytes = 0;
  };
  struct Figures {
    std::int64_t largest_promise = 0;
    std::int64_t fixed = 0;
    int exclusive = 0;
    std::vector<std::int64_t> promises;
  };

  std::map<NodeId, Node> nodes_;
  std::vector<Slot> slots_;
  std::vector<Figures> figures_;  ///< by slot
  std::vector<SlotId> closed_;    ///< to be used again
  int open_gpus_ = 0;
};

}  // namespace plexrl::clustermgr::placement
