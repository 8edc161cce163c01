#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/graph_edges.h"
#include "tools/simgpu/driver/graph_memory.h"
#include "tools/simgpu/driver/node_work.h"

// "Graph Management" of the driver API: nodes of each type, their parameters, and the generic
// calls. External semaphores, batches of memory operations and conditional nodes answer
// NOT_SUPPORTED.

namespace plexrl::simgpu {
namespace {

struct NewNode {
  CUgraphNode* handle;
  CUgraph graph;
  const CUgraphNode* dependencies;
  std::size_t count;
  const CUgraphEdgeData* data = nullptr;
};

// `make` fills in the work of the new node.
template <typename Make>
CUresult add(const NewNode& node, Make make) {
  const std::lock_guard lock(graph_mutex());
  if (node.handle == nullptr || find_graph(node.graph) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeWork work;
  const CUresult result = make(&work);
  if (result != CUDA_SUCCESS) return result;
  return add_node(node.handle, node.graph, node.dependencies, node.data, node.count,
                  std::move(work));
}

// `make` gets the node's present work and fills in the new one.
template <typename Make>
CUresult change(CUgraphNode handle, CUgraphNodeType type, Make make) {
  const std::lock_guard lock(graph_mutex());
  GraphNode* const node = find_node(handle);
  if (node == nullptr || node->work.type != type) return CUDA_ERROR_INVALID_VALUE;
  NodeWork work;
  work.attributes = node->work.attributes;
  const CUresult result = make(&work);
  if (result == CUDA_SUCCESS) node->work = std::move(work);
  return result;
}

template <typename Read>
CUresult read(CUgraphNode handle, CUgraphNodeType type, const void* out, Read read_node) {
  const std::lock_guard lock(graph_mutex());
  GraphNode* const node = find_node(handle);
  if (node == nullptr || node->work.type != type || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_node(node);
}

CUDA_KERNEL_NODE_PARAMS_v2 widened(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    nullptr,     nullptr};
}

CUresult event_of(CUgraphNode handle, CUgraphNodeType type, CUevent* event) {
  return read(handle, type, event, [&](const GraphNode* node) {
    *event = reinterpret_cast<CUevent>(node->work.event);
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

// ---- kernels

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                    const CUgraphNode* dependencies,
                                                    size_t numDependencies,
                                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIMGPU_ENTER(cuGraphAddKernelNode);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [&](NodeWork* work) { return kernel_work(widened(*nodeParams), work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                       const CUgraphNode* dependencies,
                                                       size_t numDependencies,
                                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphAddKernelNode_v2);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [&](NodeWork* work) { return kernel_work(*nodeParams, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode hNode,
                                                          CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIMGPU_ENTER(cuGraphKernelNodeGetParams);
  return read(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, [&](GraphNode* node) {
    CUDA_KERNEL_NODE_PARAMS_v2 p;
    const CUresult result = kernel_parameters(node, &p);
    if (result == CUDA_SUCCESS) {
      *nodeParams = {p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
                     p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
    }
    return result;
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
                                                             CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphKernelNodeGetParams_v2);
  return read(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams,
              [&](GraphNode* node) { return kernel_parameters(node, nodeParams); });
}

SIMGPU_EXPORT CUresult CUDAAPI
cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  SIMGPU_ENTER(cuGraphKernelNodeSetParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change(hNode, CU_GRAPH_NODE_TYPE_KERNEL,
                [&](NodeWork* work) { return kernel_work(widened(*nodeParams), work); });
}

SIMGPU_EXPORT CUresult CUDAAPI
cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphKernelNodeSetParams_v2);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change(hNode, CU_GRAPH_NODE_TYPE_KERNEL,
                [&](NodeWork* work) { return kernel_work(*nodeParams, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode hNode,
                                                             CUkernelNodeAttrID attr,
                                                             CUkernelNodeAttrValue* value_out) {
  SIMGPU_ENTER(cuGraphKernelNodeGetAttribute);
  return read(hNode, CU_GRAPH_NODE_TYPE_KERNEL, value_out, [&](const GraphNode* node) {
    const auto found = node->work.attributes.find(attr);
    *value_out = found == node->work.attributes.end() ? CUlaunchAttributeValue{} : found->second;
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode hNode,
                                                             CUkernelNodeAttrID attr,
                                                             const CUkernelNodeAttrValue* value) {
  SIMGPU_ENTER(cuGraphKernelNodeSetAttribute);
  return read(hNode, CU_GRAPH_NODE_TYPE_KERNEL, value,
              [&](GraphNode* node) { return set_kernel_attribute(&node->work, attr, *value); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  SIMGPU_ENTER(cuGraphKernelNodeCopyAttributes);
  const std::lock_guard lock(graph_mutex());
  GraphNode* const target = find_node(dst);
  const GraphNode* const source = find_node(src);
  const bool is_valid = target != nullptr && source != nullptr &&
                        target->work.type == CU_GRAPH_NODE_TYPE_KERNEL &&
                        source->work.type == CU_GRAPH_NODE_TYPE_KERNEL;
  if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [id, value] : source->work.attributes) {
    const CUresult result = set_kernel_attribute(&target->work, id, value);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// ---- copies, fills, host functions

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                    const CUgraphNode* dependencies,
                                                    size_t numDependencies,
                                                    const CUDA_MEMCPY3D* copyParams,
                                                    CUcontext ctx) {
  SIMGPU_ENTER(cuGraphAddMemcpyNode);
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [&](NodeWork* work) { return copy_work(*copyParams, ctx, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode hNode,
                                                          CUDA_MEMCPY3D* nodeParams) {
  SIMGPU_ENTER(cuGraphMemcpyNodeGetParams);
  return read(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams,
              [&](const GraphNode* node) { return copy_parameters(*node, nodeParams); });
}

// The context stays that of the node.
SIMGPU_EXPORT CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode hNode,
                                                          const CUDA_MEMCPY3D* nodeParams) {
  SIMGPU_ENTER(cuGraphMemcpyNodeSetParams);
  return read(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams, [&](GraphNode* node) {
    const auto context = reinterpret_cast<CUcontext>(node->work.context);
    return copy_work(*nodeParams, context, &node->work);
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                    const CUgraphNode* dependencies,
                                                    size_t numDependencies,
                                                    const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                                    CUcontext ctx) {
  SIMGPU_ENTER(cuGraphAddMemsetNode);
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [&](NodeWork* work) { return fill_work(*memsetParams, ctx, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode hNode,
                                                          CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphMemsetNodeGetParams);
  return read(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams,
              [&](const GraphNode* node) { return fill_parameters(*node, nodeParams); });
}

SIMGPU_EXPORT CUresult CUDAAPI
cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphMemsetNodeSetParams);
  return read(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, [&](GraphNode* node) {
    const auto context = reinterpret_cast<CUcontext>(node->work.context);
    return fill_work(*nodeParams, context, &node->work);
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                  const CUgraphNode* dependencies,
                                                  size_t numDependencies,
                                                  const CUDA_HOST_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphAddHostNode);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [&](NodeWork* work) { return host_work(*nodeParams, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode hNode,
                                                        CUDA_HOST_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphHostNodeGetParams);
  return read(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams,
              [&](const GraphNode* node) { return host_parameters(*node, nodeParams); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode hNode,
                                                        const CUDA_HOST_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphHostNodeSetParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change(hNode, CU_GRAPH_NODE_TYPE_HOST,
                [&](NodeWork* work) { return host_work(*nodeParams, work); });
}

// ---- child graphs, empty nodes, events

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                        const CUgraphNode* dependencies,
                                                        size_t numDependencies,
                                                        CUgraph childGraph) {
  SIMGPU_ENTER(cuGraphAddChildGraphNode);
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [&](NodeWork* work) { return child_work(childGraph, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  SIMGPU_ENTER(cuGraphChildGraphNodeGetGraph);
  return read(hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph, [&](const GraphNode* node) {
    *phGraph = handle_of(node->work.child.get());
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                   const CUgraphNode* dependencies,
                                                   size_t numDependencies) {
  SIMGPU_ENTER(cuGraphAddEmptyNode);
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [](NodeWork*) { return CUDA_SUCCESS; });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                         const CUgraphNode* dependencies,
                                                         size_t numDependencies, CUevent event) {
  SIMGPU_ENTER(cuGraphAddEventRecordNode);
  return add({phGraphNode, hGraph, dependencies, numDependencies}, [&](NodeWork* work) {
    return event_work(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, work);
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphEventRecordNodeGetEvent(CUgraphNode hNode,
                                                              CUevent* event_out) {
  SIMGPU_ENTER(cuGraphEventRecordNodeGetEvent);
  return event_of(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  SIMGPU_ENTER(cuGraphEventRecordNodeSetEvent);
  return change(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, [&](NodeWork* work) {
    return event_work(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, work);
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                       const CUgraphNode* dependencies,
                                                       size_t numDependencies, CUevent event) {
  SIMGPU_ENTER(cuGraphAddEventWaitNode);
  return add({phGraphNode, hGraph, dependencies, numDependencies}, [&](NodeWork* work) {
    return event_work(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, work);
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  SIMGPU_ENTER(cuGraphEventWaitNodeGetEvent);
  return event_of(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  SIMGPU_ENTER(cuGraphEventWaitNodeSetEvent);
  return change(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, [&](NodeWork* work) {
    return event_work(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, work);
  });
}

// ---- memory

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                      const CUgraphNode* dependencies,
                                                      size_t numDependencies,
                                                      CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  SIMGPU_ENTER(cuGraphAddMemAllocNode);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [&](NodeWork* work) { return allocation_work(nodeParams, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI
cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  SIMGPU_ENTER(cuGraphMemAllocNodeGetParams);
  return read(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out, [&](const GraphNode* node) {
    if (node->work.memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *params_out = node->work.memory->parameters();
    return CUDA_SUCCESS;
  });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                     const CUgraphNode* dependencies,
                                                     size_t numDependencies, CUdeviceptr dptr) {
  SIMGPU_ENTER(cuGraphAddMemFreeNode);
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [&](NodeWork* work) { return free_work(dptr, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode hNode,
                                                           CUdeviceptr* dptr_out) {
  SIMGPU_ENTER(cuGraphMemFreeNodeGetParams);
  return read(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out, [&](const GraphNode* node) {
    *dptr_out = node->work.freed;
    return CUDA_SUCCESS;
  });
}

// ---- any type

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                              const CUgraphNode* dependencies,
                                              size_t numDependencies,
                                              CUgraphNodeParams* nodeParams) {
  SIMGPU_ENTER(cuGraphAddNode);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({phGraphNode, hGraph, dependencies, numDependencies},
             [&](NodeWork* work) { return generic_work(nodeParams, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                 const CUgraphNode* dependencies,
                                                 const CUgraphEdgeData* dependencyData,
                                                 size_t numDependencies,
                                                 CUgraphNodeParams* nodeParams) {
  SIMGPU_ENTER(cuGraphAddNode_v2);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({phGraphNode, hGraph, dependencies, numDependencies, dependencyData},
             [&](NodeWork* work) { return generic_work(nodeParams, work); });
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode hNode,
                                                    CUgraphNodeParams* nodeParams) {
  SIMGPU_ENTER(cuGraphNodeSetParams);
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change(hNode, nodeParams->type,
                [&](NodeWork* work) { return generic_work(nodeParams, work); });
}
