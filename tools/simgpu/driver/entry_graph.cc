#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/graph.h"
#include "tools/simgpu/driver/graph_edges.h"

// "Graph Management" of the driver API: graphs, their nodes and edges as such. Nodes of each type
// are in entry_graph_node.cc, executable graphs in entry_graph_exec.cc.

namespace plexrl::simgpu {
namespace {

CUresult add_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                   const CUgraphEdgeData* data, std::size_t count) {
  const std::lock_guard lock(graph_mutex());
  Graph* const graph = find_graph(handle);
  if (graph == nullptr || (count > 0 && (from == nullptr || to == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult result =
        graph->connect(find_node(from[i]), find_node(to[i]), data != nullptr ? data[i] : kFullEdge);
    if (result == CUDA_SUCCESS) continue;
    while (i-- > 0) graph->disconnect(find_node(from[i]), find_node(to[i]));
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult remove_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                      std::size_t count) {
  const std::lock_guard lock(graph_mutex());
  Graph* const graph = find_graph(handle);
  if (graph == nullptr || (count > 0 && (from == nullptr || to == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult result = graph->disconnect(find_node(from[i]), find_node(to[i]));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// An old form of a query can't tell of an edge that carries data.
CUresult check_lossless(const std::vector<GraphEdge>& edges, const CUgraphEdgeData* data,
                        bool is_old) {
  const bool is_lossy =
      is_old && data == nullptr && !std::ranges::all_of(edges, is_full_edge, &GraphEdge::data);
  return is_lossy ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

CUresult list_neighbours(CUgraphNode handle, std::vector<GraphEdge> GraphNode::*side,
                         CUgraphNode* nodes, CUgraphEdgeData* data, std::size_t* count,
                         bool is_old) {
  const std::lock_guard lock(graph_mutex());
  const GraphNode* const node = find_node(handle);
  if (node == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<GraphEdge>& edges = node->*side;
  if (nodes != nullptr) {
    if (const CUresult lossy = check_lossless(edges, data, is_old); lossy != CUDA_SUCCESS)
      return lossy;
  }
  std::size_t data_count = *count;
  if (data != nullptr) {
    fill_list(data, &data_count, edges.size(), [&](std::size_t i) { return edges[i].data; });
  }
  fill_list(nodes, count, edges.size(), [&](std::size_t i) { return handle_of(edges[i].other); });
  return CUDA_SUCCESS;
}

CUresult list_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                    std::size_t* count, bool is_old) {
  const std::lock_guard lock(graph_mutex());
  const Graph* const graph = find_graph(handle);
  const bool is_valid =
      graph != nullptr && count != nullptr && (from == nullptr) == (to == nullptr);
  if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> froms;
  std::vector<GraphEdge> edges;
  for (const auto& node : graph->nodes) {
    for (const GraphEdge& edge : node->dependents) {
      froms.push_back(node.get());
      edges.push_back(edge);
    }
  }
  if (from != nullptr) {
    if (const CUresult lossy = check_lossless(edges, data, is_old); lossy != CUDA_SUCCESS)
      return lossy;
  }
  std::size_t from_count = *count;
  std::size_t data_count = *count;
  if (data != nullptr) {
    fill_list(data, &data_count, edges.size(), [&](std::size_t i) { return edges[i].data; });
  }
  fill_list(from, &from_count, edges.size(), [&](std::size_t i) { return handle_of(froms[i]); });
  fill_list(to, count, edges.size(), [&](std::size_t i) { return handle_of(edges[i].other); });
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  SIMGPU_ENTER(cuGraphCreate);
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(graph_mutex());
  *phGraph = keep_graph(std::make_shared<Graph>());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph) {
  SIMGPU_ENTER(cuGraphDestroy);
  const std::lock_guard lock(graph_mutex());
  if (kept_graph(hGraph) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  forget_graph(hGraph);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  SIMGPU_ENTER(cuGraphClone);
  const std::lock_guard lock(graph_mutex());
  const Graph* const graph = find_graph(originalGraph);
  if (graph == nullptr || phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  *phGraphClone = keep_graph(graph->clone());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode* phNode,
                                                      CUgraphNode hOriginalNode,
                                                      CUgraph hClonedGraph) {
  SIMGPU_ENTER(cuGraphNodeFindInClone);
  const std::lock_guard lock(graph_mutex());
  const Graph* const clone = find_graph(hClonedGraph);
  const GraphNode* const original = find_node(hOriginalNode);
  if (clone == nullptr || original == nullptr || phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = clone->clones.find(original);
  // The clone's node may have been destroyed since.
  if (found == clone->clones.end() || find_node(handle_of(found->second)) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *phNode = handle_of(found->second);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode hNode) {
  SIMGPU_ENTER(cuGraphDestroyNode);
  const std::lock_guard lock(graph_mutex());
  GraphNode* const node = find_node(hNode);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphNodeType type = node->work.type;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  node->graph->remove(node);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  SIMGPU_ENTER(cuGraphNodeGetType);
  const std::lock_guard lock(graph_mutex());
  const GraphNode* const node = find_node(hNode);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->work.type;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes,
                                               size_t* numNodes) {
  SIMGPU_ENTER(cuGraphGetNodes);
  const std::lock_guard lock(graph_mutex());
  const Graph* const graph = find_graph(hGraph);
  if (graph == nullptr || numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  fill_list(nodes, numNodes, graph->nodes.size(),
            [&](std::size_t i) { return handle_of(graph->nodes[i].get()); });
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes,
                                                   size_t* numRootNodes) {
  SIMGPU_ENTER(cuGraphGetRootNodes);
  const std::lock_guard lock(graph_mutex());
  const Graph* const graph = find_graph(hGraph);
  if (graph == nullptr || numRootNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<GraphNode*> roots = graph->roots();
  fill_list(rootNodes, numRootNodes, roots.size(),
            [&](std::size_t i) { return handle_of(roots[i]); });
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                               size_t* numEdges) {
  SIMGPU_ENTER(cuGraphGetEdges);
  return list_edges(hGraph, from, to, nullptr, numEdges, true);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from,
                                                  CUgraphNode* to, CUgraphEdgeData* edgeData,
                                                  size_t* numEdges) {
  SIMGPU_ENTER(cuGraphGetEdges_v2);
  return list_edges(hGraph, from, to, edgeData, numEdges, edgeData == nullptr);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode hNode,
                                                          CUgraphNode* dependencies,
                                                          size_t* numDependencies) {
  SIMGPU_ENTER(cuGraphNodeGetDependencies);
  return list_neighbours(hNode, &GraphNode::dependencies, dependencies, nullptr, numDependencies,
                         true);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode hNode,
                                                             CUgraphNode* dependencies,
                                                             CUgraphEdgeData* edgeData,
                                                             size_t* numDependencies) {
  SIMGPU_ENTER(cuGraphNodeGetDependencies_v2);
  return list_neighbours(hNode, &GraphNode::dependencies, dependencies, edgeData, numDependencies,
                         edgeData == nullptr);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode hNode,
                                                            CUgraphNode* dependentNodes,
                                                            size_t* numDependentNodes) {
  SIMGPU_ENTER(cuGraphNodeGetDependentNodes);
  return list_neighbours(hNode, &GraphNode::dependents, dependentNodes, nullptr, numDependentNodes,
                         true);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode,
                                                               CUgraphNode* dependentNodes,
                                                               CUgraphEdgeData* edgeData,
                                                               size_t* numDependentNodes) {
  SIMGPU_ENTER(cuGraphNodeGetDependentNodes_v2);
  return list_neighbours(hNode, &GraphNode::dependents, dependentNodes, edgeData, numDependentNodes,
                         edgeData == nullptr);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from,
                                                      const CUgraphNode* to,
                                                      size_t numDependencies) {
  SIMGPU_ENTER(cuGraphAddDependencies);
  return add_edges(hGraph, from, to, nullptr, numDependencies);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                                         const CUgraphNode* to,
                                                         const CUgraphEdgeData* edgeData,
                                                         size_t numDependencies) {
  SIMGPU_ENTER(cuGraphAddDependencies_v2);
  return add_edges(hGraph, from, to, edgeData, numDependencies);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from,
                                                         const CUgraphNode* to,
                                                         size_t numDependencies) {
  SIMGPU_ENTER(cuGraphRemoveDependencies);
  return remove_edges(hGraph, from, to, numDependencies);
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                                            const CUgraphNode* to,
                                                            const CUgraphEdgeData*,
                                                            size_t numDependencies) {
  SIMGPU_ENTER(cuGraphRemoveDependencies_v2);
  return remove_edges(hGraph, from, to, numDependencies);
}
