#include "tools/simgpu/driver/graph_exec.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tools/simgpu/driver/capture.h"
#include "tools/simgpu/driver/clock.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/graph_memory.h"

namespace plexrl::simgpu {
namespace {

std::unordered_set<const void*>& living() {
  static auto* const instance = new std::unordered_set<const void*>;
  return *instance;
}

constexpr std::uint64_t kKnownFlags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                      CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                      CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

void sort_unique(std::vector<std::size_t>* steps) {
  std::ranges::sort(*steps);
  steps->erase(std::unique(steps->begin(), steps->end()), steps->end());
}

// Appends `graph` behind the steps `base`; *ends gets the steps that what follows it depends on.
bool unfold(const Graph& graph, const std::vector<std::size_t>& base, GraphPlan* plan,
            std::vector<std::size_t>* ends) {
  std::vector<GraphNode*> order;
  if (!graph.sorted(&order)) return false;
  std::unordered_map<const GraphNode*, std::vector<std::size_t>> ends_of;
  *ends = graph.nodes.empty() ? base : std::vector<std::size_t>{};
  for (const GraphNode* node : order) {
    std::vector<std::size_t> after = node->dependencies.empty() ? base : std::vector<std::size_t>{};
    for (const GraphEdge& edge : node->dependencies) {
      const auto& earlier = ends_of[edge.other];
      after.insert(after.end(), earlier.begin(), earlier.end());
    }
    sort_unique(&after);
    std::vector<std::size_t>& own_ends = ends_of[node];
    if (node->work.child != nullptr) {
      if (!unfold(*node->work.child, after, plan, &own_ends)) return false;
    } else {
      own_ends = {plan->size()};
      plan->push_back({node->id, node->work, std::move(after)});
    }
    if (node->dependents.empty()) ends->insert(ends->end(), own_ends.begin(), own_ends.end());
  }
  sort_unique(ends);
  return true;
}

// One launch of a plan.
class GraphRun final : public Operation {
 public:
  GraphRun(std::shared_ptr<const GraphPlan> plan, std::shared_ptr<UserObjects> user_objects,
           std::vector<CompletionPtr> events)
      : plan_(std::move(plan)),
        user_objects_(std::move(user_objects)),
        events_(std::move(events)) {}
  // Whoever waits for an event of a launch that an error kept from running goes on.
  ~GraphRun() override {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const bool is_record = (*plan_)[i].work.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
      if (is_record && events_[i] != nullptr && !events_[i]->is_done()) events_[i]->finish(0);
    }
  }
  CUresult run(const RunScope& scope, std::uint64_t* end_ns) override {
    *end_ns = scope.start_ns;
    RunScope at = scope;
    for (std::size_t i = 0; i < plan_->size(); ++i) {
      const GraphStep& step = (*plan_)[i];
      if (!step.is_enabled) continue;
      const CUresult result = run_step(step.work, events_[i], at, end_ns);
      if (result != CUDA_SUCCESS) return result;
      at.ready_ns = now_ns();
    }
    return CUDA_SUCCESS;
  }
  std::unique_ptr<Operation> clone() const override { return std::make_unique<GraphRun>(*this); }
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_GRAPH; }

 private:
  static CUresult run_step(const NodeWork& work, const CompletionPtr& event, const RunScope& scope,
                           std::uint64_t* now) {
    switch (work.type) {
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        if (event != nullptr) event->finish(*now);
        return CUDA_SUCCESS;
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        if (event == nullptr) return CUDA_SUCCESS;
        event->wait();
        *now = std::max(*now, event->end_ns());
        return CUDA_SUCCESS;
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        if (work.memory != nullptr) return work.memory->allocate();
        break;
      case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (work.memory != nullptr) return work.memory->free();
        break;
      default:
        break;
    }
    if (work.operation == nullptr) return CUDA_SUCCESS;
    Context* const context = work.context != nullptr ? work.context : scope.context;
    if (!context->alive.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    std::uint64_t end = *now;
    const CUresult result =
        work.operation->run({context, scope.stream, *now, scope.ready_ns}, &end);
    *now = std::max(*now, end);
    return result;
  }

  std::shared_ptr<const GraphPlan> plan_;
  std::shared_ptr<UserObjects> user_objects_;  // kept while it runs
  std::vector<CompletionPtr> events_;          // by step; of event nodes only
};

// What event nodes of this launch finish or wait for: recording takes effect at the launch, in
// order, as cuEventRecord does at its call.
std::vector<CompletionPtr> bind_events(const GraphPlan& plan) {
  std::vector<CompletionPtr> bound(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Event* const event = plan[i].work.event;
    // A node may outlive its event; it then does nothing.
    if (event == nullptr || !is_event(reinterpret_cast<CUevent>(event))) continue;
    const std::lock_guard lock(event->mutex);
    if (plan[i].work.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      event->recorded = std::make_shared<Completion>();
      event->captured_in = nullptr;
    }
    bound[i] = event->recorded;
  }
  return bound;
}

bool has_step(const GraphPlan& plan, CUgraphNodeType type, const GraphMemory* memory) {
  return std::ranges::any_of(plan, [&](const GraphStep& step) {
    return step.work.type == type && step.work.memory.get() == memory;
  });
}

// In the order of the launches, whatever of them has run by now. An allocation that an earlier
// launch leaves and nobody frees is an error, unless the graph was made to free it by itself: that
// comes, in the stream, right before the same memory is allocated again, so it stays.
CUresult settle_allocations(const GraphPlan& plan, std::uint64_t flags) {
  for (const GraphStep& step : plan) {
    if (step.work.memory == nullptr) continue;
    GraphMemory& memory = *step.work.memory;
    if (step.work.type == CU_GRAPH_NODE_TYPE_MEM_FREE) memory.set_left(false);
    if (step.work.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const bool leaves = !has_step(plan, CU_GRAPH_NODE_TYPE_MEM_FREE, &memory);
    if (leaves && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0 &&
        memory.is_left()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Taken now, so that the launch says when there is none.
    if (const CUresult result = memory.allocate(); result != CUDA_SUCCESS) return result;
    memory.set_left(leaves);
  }
  return CUDA_SUCCESS;
}

bool is_like(const GraphStep& before, const GraphStep& after, CUgraphExecUpdateResult* reason) {
  *reason = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  if (before.work.type != after.work.type) return false;
  *reason = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  if (before.after != after.after) return false;
  if (before.work.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    *reason = CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    if (before.work.context != after.work.context) return false;
  }
  *reason = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  return before.work.memory == after.work.memory;
}

// A copy of the plan that may be changed; the caller puts it in place.
std::shared_ptr<GraphPlan> changed_plan(const GraphExec& exec) {
  return std::make_shared<GraphPlan>(*exec.plan);
}

GraphStep* find_in(GraphPlan* plan, std::uint64_t id) {
  const auto found = std::ranges::find(*plan, id, &GraphStep::node_id);
  return found == plan->end() ? nullptr : &*found;
}

}  // namespace

bool make_plan(const Graph& graph, GraphPlan* plan) {
  std::vector<std::size_t> ends;
  return unfold(graph, {}, plan, &ends);
}

std::shared_ptr<Graph> graph_of(const GraphPlan& plan) {
  auto graph = std::make_shared<Graph>();
  std::vector<GraphNode*> nodes;
  for (const GraphStep& step : plan) {
    NodeWork work = step.work;
    if (!step.is_enabled) work = {};
    nodes.push_back(graph->add(std::move(work)));
    for (const std::size_t earlier : step.after) {
      graph->connect(nodes[earlier], nodes.back(), {});
    }
  }
  return graph;
}

CUresult instantiate(const Graph& graph, std::uint64_t flags, GraphExec** made,
                     CUgraphInstantiateResult* reason) {
  *reason = CUDA_GRAPH_INSTANTIATE_ERROR;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto plan = std::make_shared<GraphPlan>();
  if (!make_plan(graph, plan.get())) {
    *reason = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* const exec = new GraphExec;
  exec->plan = std::move(plan);
  exec->user_objects->add(graph);
  exec->flags = flags;
  living().insert(exec);
  *made = exec;
  *reason = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

GraphExec* find_exec(CUgraphExec handle) {
  return living().contains(handle) ? reinterpret_cast<GraphExec*>(handle) : nullptr;
}

void destroy_exec(GraphExec* exec) {
  living().erase(exec);
  delete exec;
}

CUresult update_step(GraphExec* exec, const GraphNode& node, NodeWork work) {
  auto plan = changed_plan(*exec);
  GraphStep* const step = find_in(plan.get(), node.id);
  if (step == nullptr || step->work.type != work.type) return CUDA_ERROR_INVALID_VALUE;
  step->work = std::move(work);
  exec->plan = std::move(plan);
  return CUDA_SUCCESS;
}

CUresult enable_step(GraphExec* exec, const GraphNode& node, bool is_enabled) {
  auto plan = changed_plan(*exec);
  GraphStep* const step = find_in(plan.get(), node.id);
  if (step == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // "Only kernel, memset and memcpy nodes are currently supported."
  const CUgraphNodeType type = step->work.type;
  if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMSET &&
      type != CU_GRAPH_NODE_TYPE_MEMCPY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  step->is_enabled = is_enabled;
  exec->plan = std::move(plan);
  return CUDA_SUCCESS;
}

const GraphStep* find_step(const GraphExec& exec, const GraphNode& node) {
  const auto found = std::ranges::find(*exec.plan, node.id, &GraphStep::node_id);
  return found == exec.plan->end() ? nullptr : &*found;
}

CUresult update_steps(GraphExec* exec, const GraphPlan& before, const GraphPlan& after,
                      UpdateOutcome* outcome) {
  if (before.size() != after.size()) {
    *outcome = {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, std::min(before.size(), after.size())};
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  auto plan = changed_plan(*exec);
  for (std::size_t i = 0; i < before.size(); ++i) {
    CUgraphExecUpdateResult reason = CU_GRAPH_EXEC_UPDATE_ERROR;
    GraphStep* const step = find_in(plan.get(), before[i].node_id);
    if (step == nullptr || !is_like(before[i], after[i], &reason)) {
      *outcome = {reason, i};
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    step->work = after[i].work;
  }
  exec->plan = std::move(plan);
  *outcome = {};
  return CUDA_SUCCESS;
}

CUresult launch_graph(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(stream_handle, per_thread, &stream);
      found != CUDA_SUCCESS) {
    return found;
  }
  std::unique_lock lock(graph_mutex());
  GraphExec* exec = find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<const GraphPlan> plan = exec->plan;
  if (stream->capture.load() != nullptr) {
    NodeWork work;
    work.type = CU_GRAPH_NODE_TYPE_GRAPH;
    work.child = graph_of(*plan);
    exec->user_objects->copy_to(work.child.get());
    return capture_work(stream, std::move(work));
  }
  const CompletionPtr last = exec->last;
  const std::uint64_t flags = exec->flags;
  const std::shared_ptr<UserObjects> user_objects = exec->user_objects;
  lock.unlock();
  CUresult result = settle_allocations(*plan, flags);
  if (result != CUDA_SUCCESS) return result;
  stream->wait_for(last);
  CompletionPtr done;
  result = submit(stream_handle, per_thread,
                  std::make_unique<GraphRun>(plan, user_objects, bind_events(*plan)), &done);
  lock.lock();
  exec = find_exec(handle);
  if (exec != nullptr && result == CUDA_SUCCESS) exec->last = std::move(done);
  return result;
}

}  // namespace plexrl::simgpu
