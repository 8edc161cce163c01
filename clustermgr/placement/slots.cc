#include "clustermgr/placement/slots.h"

#include <algorithm>

namespace plexrl::clustermgr::placement {

void Slots::add_node(NodeInfo node) {
  Node& added = nodes_[node.id];
  added.free = node.gpus;
  added.info = std::move(node);
}

int Slots::free_gpus(const std::string& pool) const {
  int sum = 0;
  for (const auto& [id, node] : nodes_) {
    if (node.info.pool == pool && !node.info.draining) sum += node.free;
  }
  return sum;
}

std::vector<std::pair<NodeId, int>> Slots::find_parts(const GangProfile& gang) const {
  const Node* best = nullptr;
  std::vector<std::pair<NodeId, int>> whole;
  int missing = gang.gpus;
  for (const auto& [id, node] : nodes_) {
    const NodeInfo& info = node.info;
    if (info.pool != gang.pool || info.draining) continue;
    if (gang.hbm_bytes + gang.fixed_bytes > info.hbm_bytes) continue;
    if (node.free >= gang.gpus && (best == nullptr || node.free < best->free)) best = &node;
    if (gang.gpus > info.gpus && node.free == info.gpus && missing > 0) {
      int taken = std::min(missing, info.gpus);
      whole.emplace_back(id, taken);
      missing -= taken;
    }
  }
  if (best != nullptr) return {{best->info.id, gang.gpus}};
  return missing <= 0 ? whole : std::vector<std::pair<NodeId, int>>{};
}

SlotId Slots::open_at(const std::string& pool, std::vector<std::pair<NodeId, int>> parts) {
  SlotId id{};
  if (closed_.empty()) {
    id = SlotId{static_cast<std::uint32_t>(slots_.size())};
    slots_.emplace_back();
    figures_.emplace_back();
  } else {
    id = closed_.back();
    closed_.pop_back();
  }
  Slot& slot = slots_[static_cast<std::size_t>(id)];
  slot = Slot{};
  figures_[static_cast<std::size_t>(id)] = Figures{};
  slot.pool = pool;
  slot.parts = std::move(parts);
  slot.open = true;
  for (auto [node, gpus] : slot.parts) {
    nodes_.at(node).free -= gpus;
    slot.gpus += gpus;
  }
  open_gpus_ += slot.gpus;
  return id;
}

void Slots::close(SlotId id) {
  Slot& slot = slots_[static_cast<std::size_t>(id)];
  for (auto [node, gpus] : slot.parts) nodes_.at(node).free += gpus;
  open_gpus_ -= slot.gpus;
  slot.open = false;
  slot.members.clear();
  closed_.push_back(id);
}

void Slots::join(SlotId id, JobId job, int gang, const GangProfile& profile, double load) {
  Slot& slot = slots_[static_cast<std::size_t>(id)];
  Figures& figures = figures_[static_cast<std::size_t>(id)];
  slot.members.emplace_back(job, gang);
  slot.load += load;
  figures.promises.push_back(profile.hbm_bytes);
  figures.largest_promise = std::max(figures.largest_promise, profile.hbm_bytes);
  figures.fixed += profile.fixed_bytes;
  figures.exclusive += profile.shareable ? 0 : 1;
  for (auto [node, gpus] : slot.parts) nodes_.at(node).promised_bytes += profile.hbm_bytes * gpus;
}

void Slots::leave(SlotId id, JobId job, int gang, const GangProfile& profile, double load) {
  Slot& slot = slots_[static_cast<std::size_t>(id)];
  Figures& figures = figures_[static_cast<std::size_t>(id)];
  std::erase(slot.members, std::pair(job, gang));
  slot.load -= load;
  auto promise = std::find(figures.promises.begin(), figures.promises.end(), profile.hbm_bytes);
  if (promise != figures.promises.end()) figures.promises.erase(promise);
  figures.largest_promise = 0;
  for (std::int64_t bytes : figures.promises) {
    figures.largest_promise = std::max(figures.largest_promise, bytes);
  }
  figures.fixed -= profile.fixed_bytes;
  figures.exclusive -= profile.shareable ? 0 : 1;
  for (auto [node, gpus] : slot.parts) nodes_.at(node).promised_bytes -= profile.hbm_bytes * gpus;
  if (slot.members.empty()) close(id);
}

std::string Slots::obstacle(SlotId id, const GangProfile& gang) const {
  const Slot& slot = at(id);
  const Figures& figures = figures_[static_cast<std::size_t>(id)];
  if (!slot.open) return "closed";
  if (slot.pool != gang.pool) return "another pool";
  if (slot.gpus != gang.gpus) return "another number of GPUs";
  if (!slot.members.empty() && (!gang.shareable || figures.exclusive > 0)) return "exclusive";
  std::int64_t promise = std::max(figures.largest_promise, gang.hbm_bytes);
  for (auto [node_id, gpus] : slot.parts) {
    const Node& node = nodes_.at(node_id);
    if (node.info.draining) return "node drains";
    if (promise + figures.fixed + gang.fixed_bytes > node.info.hbm_bytes) {
      return "largest promise and all overheads exceed HBM";
    }
    std::int64_t capacity = node.info.hbm_bytes * node.info.gpus + node.info.tier_bytes;
    if (node.promised_bytes + gang.hbm_bytes * gpus > capacity) {
      return "promises exceed HBM, host and disk of the node";
    }
  }
  return "";
}

}  // namespace plexrl::clustermgr::placement
