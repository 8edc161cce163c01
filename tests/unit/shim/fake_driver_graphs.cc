#include <cstdint>

#include "tests/unit/shim/fake_driver.h"

/// The fake driver's graphs: nodes that allocate, whose memory the driver takes at a launch and
/// keeps until it is trimmed. Nodes that free are there unless the graph is to free by itself.

namespace plexrl::shim::testing {
namespace {

FakeDriver* fake = nullptr;

#define COUNT(name)                        \
  const std::lock_guard lock(fake->mutex); \
  if (const CUresult failed = fake->count(#name); failed != CUDA_SUCCESS) return failed

CUresult nodes(CUgraph graph, CUgraphNode* out, std::size_t* count) {
  COUNT(cuGraphGetNodes);
  const auto& its = fake->graphs.at(graph);
  for (std::size_t i = 0; out != nullptr && i < its.size() && i < *count; ++i)
    out[i] = reinterpret_cast<CUgraphNode>(const_cast<std::size_t*>(&its[i]));
  *count = its.size();
  return CUDA_SUCCESS;
}

CUresult type(CUgraphNode, CUgraphNodeType* out) {
  COUNT(cuGraphNodeGetType);
  *out = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  return CUDA_SUCCESS;
}

CUresult allocation(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  COUNT(cuGraphMemAllocNodeGetParams);
  *out = {};
  out->poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  out->bytesize = *reinterpret_cast<const std::size_t*>(node);
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  COUNT(cuGraphInstantiateWithFlags);
  *out = reinterpret_cast<CUgraphExec>(fake->next_object += 0x100);
  std::size_t bytes = 0;
  for (const std::size_t node : fake->graphs.at(graph)) bytes += node;
  fake->execs[*out] = bytes;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0) fake->left_behind[*out] = 0;
  return CUDA_SUCCESS;
}

CUresult destroy(CUgraphExec exec) {
  COUNT(cuGraphExecDestroy);
  fake->execs.erase(exec);
  return CUDA_SUCCESS;
}

std::size_t graph_memory_used() {
  std::size_t sum = 0;
  for (const auto& [exec, bytes] : fake->left_behind) sum += bytes;
  return sum;
}

/// The memory of a graph is free again when it has run, which is at once; the driver keeps it.
CUresult take(CUgraphExec exec) {
  const std::size_t bytes = fake->execs.at(exec);
  const std::size_t free = fake->graph_memory - graph_memory_used();
  if (bytes <= free) return CUDA_SUCCESS;
  const std::size_t more = bytes - free;
  if (more > fake->hbm_bytes - fake->used) return CUDA_ERROR_OUT_OF_MEMORY;
  fake->used += more;
  fake->graph_memory += more;
  return CUDA_SUCCESS;
}

CUresult launch(CUgraphExec exec, CUstream) {
  COUNT(cuGraphLaunch);
  const auto left = fake->left_behind.find(exec);
  if (left == fake->left_behind.end()) return take(exec);
  left->second = 0;
  const CUresult taken = take(exec);
  if (taken == CUDA_SUCCESS) left->second = fake->execs.at(exec);
  return taken;
}

CUresult upload(CUgraphExec exec, CUstream) {
  COUNT(cuGraphUpload);
  return take(exec);
}

CUresult attribute(CUdevice, CUgraphMem_attribute which, void* out) {
  COUNT(cuDeviceGetGraphMemAttribute);
  *static_cast<cuuint64_t*>(out) =
      which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? fake->graph_memory : graph_memory_used();
  return CUDA_SUCCESS;
}

CUresult trim(CUdevice) {
  COUNT(cuDeviceGraphMemTrim);
  fake->used -= fake->graph_memory - graph_memory_used();
  fake->graph_memory = graph_memory_used();
  return CUDA_SUCCESS;
}

}  // namespace

CUgraph FakeDriver::make_graph(std::vector<std::size_t> allocations) {
  const std::lock_guard lock(mutex);
  const auto graph = reinterpret_cast<CUgraph>(next_object += 0x100);
  graphs[graph] = std::move(allocations);
  return graph;
}

void FakeDriver::have_graphs() {
  fake = this;
  driver.cuGraphGetNodes = &nodes;
  driver.cuGraphNodeGetType = &type;
  driver.cuGraphMemAllocNodeGetParams = &allocation;
  driver.cuGraphInstantiateWithFlags = &instantiate;
  driver.cuGraphExecDestroy = &destroy;
  driver.cuGraphLaunch = &launch;
  driver.cuGraphUpload = &upload;
  driver.cuDeviceGetGraphMemAttribute = &attribute;
  driver.cuDeviceGraphMemTrim = &trim;
}

}  // namespace plexrl::shim::testing
