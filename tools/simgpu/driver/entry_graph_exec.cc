#include <cstring>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/graph_exec.h"
#include "tools/simgpu/driver/node_work.h"

// "Graph Management" of the driver API: executable graphs, their updates and launches.

namespace plexrl::simgpu {
namespace {

CUresult instantiate_handle(CUgraphExec* handle, CUgraph graph_handle, std::uint64_t flags,
                            CUgraphInstantiateResult* reason) {
  const std::lock_guard lock(graph_mutex());
  const Graph* const graph = find_graph(graph_handle);
  *reason = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (handle == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphExec* exec = nullptr;
  const CUresult result = instantiate(*graph, flags, &exec, reason);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUgraphExec>(exec);
  return result;
}

// The forms with a log: it says why a graph can't be instantiated.
CUresult instantiate_with_log(CUgraphExec* handle, CUgraph graph, CUgraphNode* error_node,
                              char* log, std::size_t log_bytes) {
  CUgraphInstantiateResult reason = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  const CUresult result = instantiate_handle(handle, graph, 0, &reason);
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes > 0) {
    const char* const text =
        reason == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE ? "the graph has a cycle" : "";
    std::strncpy(log, text, log_bytes - 1);
    log[log_bytes - 1] = '\0';
  }
  return result;
}

CUresult instantiate_with_params(CUgraphExec* handle, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  return instantiate_handle(handle, graph, params->flags, &params->result_out);
}

// `make` gets the node and the work of its step, and turns that into the new one.
template <typename Make>
CUresult change_step(CUgraphExec exec_handle, CUgraphNode node_handle, Make make) {
  const std::lock_guard lock(graph_mutex());
  GraphExec* const exec = find_exec(exec_handle);
  const GraphNode* const node = find_node(node_handle);
  if (exec == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const GraphStep* const step = find_step(*exec, *node);
  if (step == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeWork work;
  work.attributes = step->work.attributes;
  const CUresult result = make(&work);
  if (result != CUDA_SUCCESS) return result;
  // "The function's owning context can't change", and neither can that of a copy or fill.
  if (work.context != step->work.context) return CUDA_ERROR_INVALID_VALUE;
  return update_step(exec, *node, std::move(work));
}

CUresult update_event(CUgraphExec exec_handle, CUgraphNode node_handle, CUgraphNodeType type,
                      CUevent event) {
  const std::lock_guard lock(graph_mutex());
  GraphExec* const exec = find_exec(exec_handle);
  const GraphNode* const node = find_node(node_handle);
  if (exec == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeWork work;
  const CUresult result = event_work(type, event, &work);
  return result != CUDA_SUCCESS ? result : update_step(exec, *node, std::move(work));
}

CUresult update_from_graph(CUgraphExec exec_handle, CUgraph graph_handle,
                           CUgraphExecUpdateResultInfo* info) {
  const std::lock_guard lock(graph_mutex());
  GraphExec* const exec = find_exec(exec_handle);
  const Graph* const graph = find_graph(graph_handle);
  if (exec == nullptr || graph == nullptr || info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  GraphPlan plan;
  if (!make_plan(*graph, &plan)) return CUDA_ERROR_INVALID_VALUE;
  UpdateOutcome outcome;
  const GraphPlan before = *exec->plan;
  const CUresult result = update_steps(exec, before, plan, &outcome);
  info->result = outcome.result;
  if (result == CUDA_SUCCESS) exec->user_objects->add(*graph);
  if (result != CUDA_SUCCESS && outcome.index < graph->nodes.size()) {
    // Child graphs are unfolded, so only a step of the outermost graph has a node to name.
    for (const auto& node : graph->nodes) {
      const bool is_step = outcome.index < plan.size() && plan[outcome.index].node_id == node->id;
      if (is_step) info->errorNode = handle_of(node.get());
    }
  }
  return result;
}

CUresult update_child(CUgraphExec exec_handle, CUgraphNode node_handle, CUgraph child_handle) {
  const std::lock_guard lock(graph_mutex());
  GraphExec* const exec = find_exec(exec_handle);
  const GraphNode* const node = find_node(node_handle);
  const Graph* const child = find_graph(child_handle);
  if (exec == nullptr || node == nullptr || child == nullptr || node->work.child == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GraphPlan before;
  GraphPlan after;
  if (!make_plan(*node->work.child, &before) || !make_plan(*child, &after)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  UpdateOutcome outcome;
  const CUresult result = update_steps(exec, before, after, &outcome);
  if (result == CUDA_SUCCESS) exec->user_objects->add(*child);
  return result;
}

CUresult upload(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
  Stream* stream = nullptr;
  const CUresult result = find_stream(stream_handle, per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(graph_mutex());
  return find_exec(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                  CUgraphNode* phErrorNode, char* logBuffer,
                                                  size_t bufferSize) {
  SIMGPU_ENTER(cuGraphInstantiate);
  return instantiate_with_log(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                     CUgraphNode* phErrorNode, char* logBuffer,
                                                     size_t bufferSize) {
  SIMGPU_ENTER(cuGraphInstantiate_v2);
  return instantiate_with_log(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                           unsigned long long flags) {
  SIMGPU_ENTER(cuGraphInstantiateWithFlags);
  CUgraphInstantiateResult reason;
  return instantiate_handle(phGraphExec, hGraph, flags, &reason);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphInstantiateWithParams(
    CUgraphExec* phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  SIMGPU_ENTER(cuGraphInstantiateWithParams);
  return instantiate_with_params(phGraphExec, hGraph, instantiateParams);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(
    CUgraphExec* phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  SIMGPU_ENTER(cuGraphInstantiateWithParams);
  return instantiate_with_params(phGraphExec, hGraph, instantiateParams);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  SIMGPU_ENTER(cuGraphExecGetFlags);
  const std::lock_guard lock(graph_mutex());
  const GraphExec* const exec = find_exec(hGraphExec);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec) {
  SIMGPU_ENTER(cuGraphExecDestroy);
  const std::lock_guard lock(graph_mutex());
  GraphExec* const exec = find_exec(hGraphExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  destroy_exec(exec);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecKernelNodeSetParams(
    CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIMGPU_ENTER(cuGraphExecKernelNodeSetParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS_v1& p = *nodeParams;
  return change_step(hGraphExec, hNode, [&](NodeWork* work) {
    return kernel_work({p.func, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY,
                        p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra, nullptr, nullptr},
                       work);
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(
    CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphExecKernelNodeSetParams_v2);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_step(hGraphExec, hNode,
                     [&](NodeWork* work) { return kernel_work(*nodeParams, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec,
                                                              CUgraphNode hNode,
                                                              const CUDA_MEMCPY3D* copyParams,
                                                              CUcontext ctx) {
  SIMGPU_ENTER(cuGraphExecMemcpyNodeSetParams);
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_step(hGraphExec, hNode,
                     [&](NodeWork* work) { return copy_work(*copyParams, ctx, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI
cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                               const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  SIMGPU_ENTER(cuGraphExecMemsetNodeSetParams);
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_step(hGraphExec, hNode,
                     [&](NodeWork* work) { return fill_work(*memsetParams, ctx, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecHostNodeSetParams(
    CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphExecHostNodeSetParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_step(hGraphExec, hNode,
                     [&](NodeWork* work) { return host_work(*nodeParams, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec,
                                                                  CUgraphNode hNode,
                                                                  CUgraph childGraph) {
  SIMGPU_ENTER(cuGraphExecChildGraphNodeSetParams);
  return update_child(hGraphExec, hNode, childGraph);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec,
                                                                  CUgraphNode hNode,
                                                                  CUevent event) {
  SIMGPU_ENTER(cuGraphExecEventRecordNodeSetEvent);
  return update_event(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec,
                                                                CUgraphNode hNode, CUevent event) {
  SIMGPU_ENTER(cuGraphExecEventWaitNodeSetEvent);
  return update_event(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                        CUgraphNodeParams* nodeParams) {
  SIMGPU_ENTER(cuGraphExecNodeSetParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return update_child(hGraphExec, hNode, nodeParams->graph.graph);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return update_event(hGraphExec, hNode, nodeParams->type, nodeParams->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return update_event(hGraphExec, hNode, nodeParams->type, nodeParams->eventWait.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return change_step(hGraphExec, hNode,
                         [&](NodeWork* work) { return generic_work(nodeParams, work); });
  }
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                     unsigned int isEnabled) {
  SIMGPU_ENTER(cuGraphNodeSetEnabled);
  const std::lock_guard lock(graph_mutex());
  GraphExec* const exec = find_exec(hGraphExec);
  const GraphNode* const node = find_node(hNode);
  if (exec == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return enable_step(exec, *node, isEnabled != 0);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                     unsigned int* isEnabled) {
  SIMGPU_ENTER(cuGraphNodeGetEnabled);
  const std::lock_guard lock(graph_mutex());
  const GraphExec* const exec = find_exec(hGraphExec);
  const GraphNode* const node = find_node(hNode);
  if (exec == nullptr || node == nullptr || isEnabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const GraphStep* const step = find_step(*exec, *node);
  if (step == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *isEnabled = step->is_enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph,
                                                 CUgraphNode* hErrorNode_out,
                                                 CUgraphExecUpdateResult* updateResult_out) {
  SIMGPU_ENTER(cuGraphExecUpdate);
  if (hErrorNode_out == nullptr || updateResult_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info;
  const CUresult result = update_from_graph(hGraphExec, hGraph, &info);
  if (result != CUDA_ERROR_INVALID_VALUE) {
    *hErrorNode_out = info.errorNode;
    *updateResult_out = info.result;
  }
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                                    CUgraphExecUpdateResultInfo* resultInfo) {
  SIMGPU_ENTER(cuGraphExecUpdate_v2);
  return update_from_graph(hGraphExec, hGraph, resultInfo);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  SIMGPU_ENTER(cuGraphUpload);
  return upload(hGraphExec, hStream, false);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  SIMGPU_ENTER(cuGraphUpload);
  return upload(hGraphExec, hStream, true);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  SIMGPU_ENTER(cuGraphLaunch);
  return launch_graph(hGraphExec, hStream, false);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  SIMGPU_ENTER(cuGraphLaunch);
  return launch_graph(hGraphExec, hStream, true);
}
