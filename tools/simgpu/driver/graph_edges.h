#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tools/simgpu/driver/graph.h"

/// Arguments that many graph calls share: lists of dependencies, and lists to fill.
namespace plexrl::simgpu {

inline constexpr CUgraphEdgeData kFullEdge{};

inline bool is_full_edge(const CUgraphEdgeData& data) {
  return data.from_port == 0 && data.to_port == 0 && data.type == 0;
}

/// The nodes that handles name, as edges. INVALID_VALUE for a null list, a node of another graph,
/// or one that occurs twice. `data` may be null.
CUresult read_dependencies(const Graph& graph, const CUgraphNode* handles,
                           const CUgraphEdgeData* data, std::size_t count,
                           std::vector<GraphEdge>* edges);

/// Adds a node behind its dependencies.
CUresult add_node(CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies,
                  const CUgraphEdgeData* data, std::size_t count, NodeWork work);

/// "If the list is NULL, only the count is returned; else it is filled, and the rest set to NULL
/// where it is longer." *count: its length, then how many there are, or were filled in.
template <typename Handle, typename Read>
void fill_list(Handle* list, std::size_t* count, std::size_t available, Read read) {
  if (list != nullptr) {
    for (std::size_t i = 0; i < *count; ++i) list[i] = i < available ? read(i) : Handle{};
    available = std::min(available, *count);
  }
  *count = available;
}

}  // namespace plexrl::simgpu
