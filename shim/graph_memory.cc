#include "shim/graph_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "interpose/driver.h"
#include "shim/driver_scope.h"

namespace plexrl::shim {
namespace {

constexpr std::uint64_t kPage = std::uint64_t{2} << 20;  // what the driver maps at a time

std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  std::size_t count = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return {};
  std::vector<CUgraphNode> nodes(count);
  if (driver.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return {};
  nodes.resize(count);
  return nodes;
}

/// Adds what the graph's nodes allocate, those of the graphs in it too.
void add_nodes(CUgraph graph, std::map<CUdevice, std::uint64_t>* sizes) {
  for (const CUgraphNode node : nodes_of(graph)) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) continue;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph inner = nullptr;
      if (driver.cuGraphChildGraphNodeGetGraph(node, &inner) == CUDA_SUCCESS)
        add_nodes(inner, sizes);
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
      if (driver.cuGraphMemAllocNodeGetParams(node, &allocation) != CUDA_SUCCESS) continue;
      (*sizes)[allocation.poolProps.location.id] +=
          (allocation.bytesize + kPage - 1) / kPage * kPage;
    }
  }
}

std::uint64_t attribute(CUdevice device, CUgraphMem_attribute which) {
  const RelaxedCapture relaxed;
  cuuint64_t value = 0;
  const CUresult result = driver.cuDeviceGetGraphMemAttribute(device, which, &value);
  return result == CUDA_SUCCESS ? value : 0;
}

}  // namespace

void GraphMemory::instantiated(CUgraphExec exec, CUgraph graph, std::uint64_t flags) {
  Exec its;
  add_nodes(graph, &its.sizes);
  if (its.sizes.empty()) return;
  its.frees_itself = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  const std::lock_guard lock(mutex_);
  execs_[exec] = std::move(its);
  with_memory_.store(execs_.size(), std::memory_order_relaxed);
}

void GraphMemory::destroyed(CUgraphExec exec) {
  if (is_unused()) return;
  const std::lock_guard lock(mutex_);
  // What it has launched may still run: it stays charged until the next count.
  execs_.erase(exec);
  with_memory_.store(execs_.size(), std::memory_order_relaxed);
}

bool GraphMemory::charge(CUgraphExec exec, CUstream stream, bool says_why) {
  const std::lock_guard lock(mutex_);
  const auto found = execs_.find(exec);
  if (found == execs_.end()) return true;
  Exec& its = found->second;
  if (!its.is_charged) {
    std::map<CUdevice, Taken> taken;
    for (const auto& [device, bytes] : its.sizes) {
      if (take(device, bytes, its.frees_itself && its.has_run, says_why, &taken[device])) {
        continue;
      }
      taken.erase(device);
      give_back(taken);
      return false;
    }
    its.taken = std::move(taken);
    its.is_charged = true;
  }
  ++its.entered;
  is_in_several_ = is_in_several_ || (stream_ != nullptr && stream_ != stream);
  stream_ = stream;
  return true;
}

bool GraphMemory::all_in(CUstream stream) {
  const std::lock_guard lock(mutex_);
  // Every context, and every thread, has a default stream of its own by the same name.
  const bool is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  return stream_ == stream && !is_in_several_ && !is_default;
}

bool GraphMemory::take(CUdevice device, std::uint64_t bytes, bool may_reuse, bool says_why,
                       Taken* taken) {
  Counted& counted = counted_[device];
  taken->used = may_reuse ? std::min(counted.used, bytes) : 0;
  taken->idle = std::min(counted.idle, bytes - taken->used);
  taken->charged = bytes - taken->used - taken->idle;
  if (taken->charged != 0 && !devices_.charge(device, taken->charged, true, says_why)) return false;
  counted.charged += taken->charged;
  counted.idle -= taken->idle;
  counted.used -= taken->used;
  return true;
}

void GraphMemory::give_back(const std::map<CUdevice, Taken>& taken) {
  for (const auto& [device, its] : taken) {
    devices_.uncharge(device, its.charged, true);
    Counted& counted = counted_[device];
    counted.charged -= its.charged;
    counted.idle += its.idle;
    counted.used += its.used;
  }
}

void GraphMemory::settle(CUgraphExec exec, bool is_launch, CUresult result) {
  const std::lock_guard lock(mutex_);
  const auto found = execs_.find(exec);
  if (found == execs_.end() || found->second.entered == 0) return;
  Exec& its = found->second;
  its.was_launched |= result == CUDA_SUCCESS;
  its.has_run |= is_launch && result == CUDA_SUCCESS;
  if (--its.entered != 0 || its.was_launched || !its.is_charged) return;
  give_back(its.taken);
  its.is_charged = false;
}

void GraphMemory::count() {
  const std::lock_guard lock(mutex_);
  count_locked();
}

void GraphMemory::count_if_idle() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) count_locked();
}

void GraphMemory::count_locked() {
  for (const Devices::Attached& attached : devices_.all()) count_device(attached.device);
  for (auto& [exec, its] : execs_) {
    if (its.entered != 0) continue;
    its.is_charged = false;
    its.was_launched = false;
  }
  const bool is_entered = std::any_of(execs_.begin(), execs_.end(),
                                      [](const auto& its) { return its.second.entered != 0; });
  if (!is_entered) {
    stream_ = nullptr;
    is_in_several_ = false;
  }
  counts_.fetch_add(1, std::memory_order_release);
}

void GraphMemory::count_device(CUdevice device) {
  const std::uint64_t held = attribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  const std::uint64_t used = attribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
  std::uint64_t now = held;
  for (const auto& [exec, its] : execs_) {
    const auto found = its.taken.find(device);
    if (its.entered != 0 && found != its.taken.end()) now += found->second.charged;
  }
  Counted& counted = counted_[device];
  counted.idle = held - std::min(held, used);
  counted.used = std::min(held, used);
  if (now < counted.charged) devices_.uncharge(device, counted.charged - now, true);
  // The driver has it, whatever the manager thinks; what was not granted is not given back later.
  if (now > counted.charged && !devices_.charge_taken(device, now - counted.charged, true))
    now = counted.charged;
  counted.charged = now;
  const auto key = static_cast<std::uint64_t>(device);
  unpageable_.remove(wire::MemoryKind::kGraph, key);
  if (held != 0) unpageable_.add(wire::MemoryKind::kGraph, key, {device, held});
}

}  // namespace plexrl::shim
