#include "tools/simgpu/driver/graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace plexrl::simgpu {
namespace {

struct Registry {
  std::unordered_set<const void*> graphs;
  std::unordered_set<const void*> nodes;
  std::unordered_map<const void*, std::shared_ptr<Graph>> kept;
  std::uint64_t next_id = 1;
};

Registry& registry() {
  static Registry* const instance = new Registry;  // may be used until the very end
  return *instance;
}

void erase_edge(std::vector<GraphEdge>* edges, const GraphNode* other) {
  std::erase_if(*edges, [&](const GraphEdge& edge) { return edge.other == other; });
}

bool has_edge(const std::vector<GraphEdge>& edges, const GraphNode* other) {
  return std::ranges::find(edges, other, &GraphEdge::other) != edges.end();
}

}  // namespace

std::mutex& graph_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

Graph::Graph() { registry().graphs.insert(this); }

Graph::~Graph() {
  registry().graphs.erase(this);
  for (const auto& node : nodes) registry().nodes.erase(node.get());
  for (const auto& [object, count] : user_objects) release_user_object(object, count);
}

GraphNode* Graph::add(NodeWork work) {
  auto node = std::make_unique<GraphNode>();
  node->graph = this;
  node->id = registry().next_id++;
  node->work = std::move(work);
  if (node->work.child != nullptr) node->work.child->is_embedded = true;
  registry().nodes.insert(node.get());
  nodes.push_back(std::move(node));
  return nodes.back().get();
}

CUresult Graph::connect(GraphNode* from, GraphNode* to, const CUgraphEdgeData& data) {
  const bool is_possible = from != nullptr && to != nullptr && from != to && from->graph == this &&
                           to->graph == this && !has_edge(to->dependencies, from);
  if (!is_possible) return CUDA_ERROR_INVALID_VALUE;
  to->dependencies.push_back({from, data});
  from->dependents.push_back({to, data});
  return CUDA_SUCCESS;
}

CUresult Graph::disconnect(GraphNode* from, GraphNode* to) {
  if (from == nullptr || to == nullptr || !has_edge(to->dependencies, from)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  erase_edge(&to->dependencies, from);
  erase_edge(&from->dependents, to);
  return CUDA_SUCCESS;
}

void Graph::remove(GraphNode* node) {
  for (const GraphEdge& edge : node->dependencies) erase_edge(&edge.other->dependents, node);
  for (const GraphEdge& edge : node->dependents) erase_edge(&edge.other->dependencies, node);
  registry().nodes.erase(node);
  std::erase_if(nodes, [&](const auto& owned) { return owned.get() == node; });
}

std::vector<GraphNode*> Graph::roots() const {
  std::vector<GraphNode*> found;
  for (const auto& node : nodes) {
    if (node->dependencies.empty()) found.push_back(node.get());
  }
  return found;
}

bool Graph::sorted(std::vector<GraphNode*>* order) const {
  std::unordered_map<const GraphNode*, std::size_t> missing;
  std::map<std::uint64_t, GraphNode*> ready;  // by age
  for (const auto& node : nodes) {
    missing[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) ready.emplace(node->id, node.get());
  }
  order->clear();
  while (!ready.empty()) {
    GraphNode* const node = ready.begin()->second;
    ready.erase(ready.begin());
    order->push_back(node);
    for (const GraphEdge& edge : node->dependents) {
      if (--missing[edge.other] == 0) ready.emplace(edge.other->id, edge.other);
    }
  }
  return order->size() == nodes.size();
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  for (const auto& node : nodes) {
    NodeWork work = node->work;
    if (work.child != nullptr) work.child = work.child->clone();
    copy->clones[node.get()] = copy->add(std::move(work));
  }
  for (const auto& node : nodes) {
    for (const GraphEdge& edge : node->dependencies) {
      copy->connect(copy->clones[edge.other], copy->clones[node.get()], edge.data);
    }
  }
  for (const auto& [object, count] : user_objects) {
    object->references += count;
    copy->user_objects[object] = count;
  }
  return copy;
}

bool Graph::has_memory_nodes() const {
  return std::ranges::any_of(nodes, [](const auto& node) {
    return node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
           node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           (node->work.child != nullptr && node->work.child->has_memory_nodes());
  });
}

Graph* find_graph(CUgraph handle) {
  return registry().graphs.contains(handle) ? reinterpret_cast<Graph*>(handle) : nullptr;
}

GraphNode* find_node(CUgraphNode handle) {
  return registry().nodes.contains(handle) ? reinterpret_cast<GraphNode*>(handle) : nullptr;
}

CUgraph keep_graph(std::shared_ptr<Graph> graph) {
  const CUgraph handle = handle_of(graph.get());
  registry().kept[handle] = std::move(graph);
  return handle;
}

std::shared_ptr<Graph> kept_graph(CUgraph handle) {
  const auto found = registry().kept.find(handle);
  return found == registry().kept.end() ? nullptr : found->second;
}

void forget_graph(CUgraph handle) { registry().kept.erase(handle); }

void UserObjects::add(const Graph& graph) {
  for (const auto& [object, count] : graph.user_objects) {
    object->references += count;
    counts_[object] += count;
  }
  for (const auto& node : graph.nodes) {
    if (node->work.child != nullptr) add(*node->work.child);
  }
}

void UserObjects::copy_to(Graph* graph) const {
  for (const auto& [object, count] : counts_) {
    object->references += count;
    graph->user_objects[object] += count;
  }
}

UserObjects::~UserObjects() {
  for (const auto& [object, count] : counts_) release_user_object(object, count);
}

void release_user_object(UserObject* object, unsigned count) {
  if (object->references.fetch_sub(count) > count) return;
  object->destroy(object->object);
  delete object;
}

}  // namespace plexrl::simgpu
