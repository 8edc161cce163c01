#include "tools/simgpu/driver/graph_edges.h"

namespace plexrl::simgpu {

CUresult read_dependencies(const Graph& graph, const CUgraphNode* handles,
                           const CUgraphEdgeData* data, std::size_t count,
                           std::vector<GraphEdge>* edges) {
  if (count > 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* const node = find_node(handles[i]);
    if (node == nullptr || node->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
    if (std::ranges::find(*edges, node, &GraphEdge::other) != edges->end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    edges->push_back({node, data != nullptr ? data[i] : kFullEdge});
  }
  return CUDA_SUCCESS;
}

CUresult add_node(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies,
                  const CUgraphEdgeData* data, std::size_t count, NodeWork work) {
  Graph* const graph = find_graph(graph_handle);
  if (handle == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> edges;
  const CUresult result = read_dependencies(*graph, dependencies, data, count, &edges);
  if (result != CUDA_SUCCESS) return result;
  GraphNode* const node = graph->add(std::move(work));
  for (const GraphEdge& edge : edges) graph->connect(edge.other, node, edge.data);
  *handle = handle_of(node);
  return CUDA_SUCCESS;
}

}  // namespace plexrl::simgpu
