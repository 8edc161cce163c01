#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tools/simgpu/driver/context.h"
#include "tools/simgpu/driver/cuda_api.h"
#include "tools/simgpu/driver/operation.h"
#include "tools/simgpu/driver/stream.h"

/// Graphs: nodes, edges, copies of them. A CUgraph is the address of a Graph, a CUgraphNode that of
/// a GraphNode.
///
/// Threads: everything here, in graph_exec.h and in capture.h is guarded by `graph_mutex()`, which
/// the entry points take. It is never held while the caller waits for work.
namespace plexrl::simgpu {

class GraphMemory;
struct Graph;
struct GraphNode;

std::mutex& graph_mutex();

/// What a node does. All arguments are copies, made when the node was added or changed.
struct NodeWork {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Context* context = nullptr;            ///< where it runs; nullptr: where the graph is launched
  std::shared_ptr<Operation> operation;  ///< nullptr: empty, child graph, event and memory nodes
  std::shared_ptr<Graph> child;
  Event* event = nullptr;
  std::shared_ptr<GraphMemory> memory;               ///< of an allocation or free node
  CUdeviceptr freed = 0;                             ///< of a free node
  std::optional<CUDA_MEMCPY3D> copy;                 ///< as given; absent for a captured copy
  std::map<int, CUlaunchAttributeValue> attributes;  ///< of a kernel node, by id
};

struct GraphEdge {
  GraphNode* other;
  CUgraphEdgeData data;
};

struct GraphNode {
  Graph* graph;
  std::uint64_t id;  ///< unique in the process; an executable graph knows its nodes by it
  NodeWork work;
  std::vector<GraphEdge> dependencies;
  std::vector<GraphEdge> dependents;
  std::vector<void*> argument_pointers;  ///< what GetParams of a kernel node handed out
};

/// Reference-counted object that cuUserObjectCreate made.
struct UserObject {
  void* object;
  CUhostFn destroy;
  std::atomic<unsigned> references;  ///< the last launch of a graph lets go on its stream's thread
};

struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;  ///< in order of creation
  std::map<const GraphNode*, GraphNode*> clones;  ///< node of the original → ours, of a clone
  std::map<UserObject*, unsigned> user_objects;
  bool is_embedded = false;  ///< a child graph; belongs to its node

  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  GraphNode* add(NodeWork work);
  /// INVALID_VALUE when an end isn't of this graph, the edge exists, or the ends are one node.
  CUresult connect(GraphNode* from, GraphNode* to, const CUgraphEdgeData& data);
  /// INVALID_VALUE when there is no such edge.
  CUresult disconnect(GraphNode* from, GraphNode* to);
  void remove(GraphNode* node);
  std::vector<GraphNode*> roots() const;
  /// Dependencies first; otherwise in order of creation. False when there is a cycle.
  bool sorted(std::vector<GraphNode*>* order) const;
  /// A copy with copies of all nodes; child graphs too. Operations are immutable and shared.
  std::shared_ptr<Graph> clone() const;
  bool has_memory_nodes() const;
};

/// Living objects behind handles, or nullptr.
Graph* find_graph(CUgraph handle);
GraphNode* find_node(CUgraphNode handle);
/// Graphs that cuGraphCreate, cuGraphClone or a capture made: keeps them until forget_graph.
CUgraph keep_graph(std::shared_ptr<Graph> graph);
std::shared_ptr<Graph> kept_graph(CUgraph handle);
void forget_graph(CUgraph handle);

void release_user_object(UserObject* object, unsigned count);

/// References to the user objects of a graph and of its child graphs, as what is made of the graph
/// and is being launched has them ("CUDA User Objects" of the programming guide).
class UserObjects {
 public:
  void add(const Graph& graph);
  /// Gives a graph the same references.
  void copy_to(Graph* graph) const;
  UserObjects() = default;
  ~UserObjects();
  UserObjects(const UserObjects&) = delete;
  UserObjects& operator=(const UserObjects&) = delete;

 private:
  std::map<UserObject*, unsigned> counts_;
};

inline CUgraph handle_of(Graph* graph) { return reinterpret_cast<CUgraph>(graph); }
inline CUgraphNode handle_of(GraphNode* node) { return reinterpret_cast<CUgraphNode>(node); }

}  // namespace plexrl::simgpu
