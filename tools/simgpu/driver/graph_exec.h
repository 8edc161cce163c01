#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/simgpu/driver/graph.h"

/// Executable graphs: a graph's nodes in an order that respects its edges, child graphs unfolded in
/// their place. The steps of a launch run one after the other on the stream's thread, also where
/// edges would allow them to overlap.
namespace plexrl::simgpu {

struct GraphStep {
  std::uint64_t node_id;  ///< GraphNode::id
  NodeWork work;
  std::vector<std::size_t> after;  ///< steps that it depends on, ascending
  bool is_enabled = true;
};
using GraphPlan = std::vector<GraphStep>;

/// False when the graph, or a child graph, has a cycle.
bool make_plan(const Graph& graph, GraphPlan* plan);
/// A graph with the plan's steps and edges; without child graphs.
std::shared_ptr<Graph> graph_of(const GraphPlan& plan);

/// A CUgraphExec is the address of one.
struct GraphExec {
  std::shared_ptr<const GraphPlan> plan;  ///< replaced, not changed, by updates
  std::shared_ptr<UserObjects> user_objects = std::make_shared<UserObjects>();
  std::uint64_t flags = 0;
  CompletionPtr last;  ///< launches of one executable graph run one after the other
};

CUresult instantiate(const Graph& graph, std::uint64_t flags, GraphExec** made,
                     CUgraphInstantiateResult* reason);
GraphExec* find_exec(CUgraphExec handle);
void destroy_exec(GraphExec* exec);

/// Gives the step of `node` new work of the same type. INVALID_VALUE when the executable graph has
/// no such node or the type differs.
CUresult update_step(GraphExec* exec, const GraphNode& node, NodeWork work);
CUresult enable_step(GraphExec* exec, const GraphNode& node, bool is_enabled);
const GraphStep* find_step(const GraphExec& exec, const GraphNode& node);

/// Gives the steps of `before` (a part of the plan, or all of it) the work of the like steps of
/// `after`. GRAPH_EXEC_UPDATE_FAILURE, with the reason and the index of the step, when they don't
/// have the same shape; nothing is changed then.
struct UpdateOutcome {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  std::size_t index = 0;
};
CUresult update_steps(GraphExec* exec, const GraphPlan& before, const GraphPlan& after,
                      UpdateOutcome* outcome);

/// Launches into a stream, or into the capture that it is in. Takes graph_mutex() itself.
CUresult launch_graph(CUgraphExec handle, CUstream stream, bool per_thread);

}  // namespace plexrl::simgpu
