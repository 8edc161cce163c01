#include "tools/simgpu/driver/capture.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/graph_memory.h"
#include "tools/simgpu/driver/node_work.h"

namespace plexrl::simgpu {
namespace {

std::uint64_t next_capture_id = 1;

std::set<Capture*>& running() {
  static auto* const instance = new std::set<Capture*>;
  return *instance;
}

// Lets calls outside any capture skip the lock.
std::atomic<std::size_t> running_count{0};
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/// Events that were recorded in one still name it.
std::vector<std::unique_ptr<Capture>>& ended() {
  static auto* const instance = new std::vector<std::unique_ptr<Capture>>;
  return *instance;
}

void stop_running(Capture* capture) {
  running().erase(capture);
  ended().emplace_back(capture);
  running_count.store(running().size(), std::memory_order_release);
}

void invalidate(Capture* capture) {
  if (capture->state == Capture::State::kActive) capture->state = Capture::State::kInvalidated;
}

void add_unique(Dependencies* tail, const Dependencies& more) {
  for (const GraphEdge& edge : more) {
    if (std::ranges::find(*tail, edge.other, &GraphEdge::other) == tail->end()) {
      tail->push_back(edge);
    }
  }
}

// Whether `capture` forbids the calling thread a call that may wait for, or change, what a capture
// records ("unsafe" in the reference of cuThreadExchangeStreamCaptureMode).
bool forbids(const Capture& capture) {
  if (capture.state != Capture::State::kActive) return false;
  if (capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

}  // namespace

Capture::Capture(Stream* origin_in, CUstreamCaptureMode mode_in, std::shared_ptr<Graph> graph_in)
    : id(next_capture_id++), origin(origin_in), mode(mode_in), graph(std::move(graph_in)) {}

GraphNode* Capture::add(Stream* stream, NodeWork work) {
  GraphNode* const node = graph->add(std::move(work));
  Dependencies& tail = tails[stream];
  for (const GraphEdge& edge : tail) graph->connect(edge.other, node, edge.data);
  tail = {{node, {}}};
  added.push_back(node);
  return node;
}

void Capture::join(Stream* stream, const Dependencies& tail) {
  add_unique(&tails[stream], tail);
  stream->capture.store(this, std::memory_order_release);
}

bool Capture::is_joined() const {
  const Dependencies& tail = tails.at(origin);
  return std::ranges::all_of(added, [&](const GraphNode* node) {
    return !node->dependents.empty() ||
           std::ranges::find(tail, node, &GraphEdge::other) != tail.end();
  });
}

void Capture::end() {
  for (const auto& [stream, tail] : tails)
    stream->capture.store(nullptr, std::memory_order_release);
  state = State::kEnded;
  tails.clear();
  events.clear();
  added.clear();
  graph.reset();
  stop_running(this);
}

CUresult begin_capture(Stream* stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
                       const Dependencies& tail) {
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  // "Capture must not be started on CU_STREAM_LEGACY."
  if (stream->kind() == Stream::Kind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture.load() != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto* const capture = new Capture(stream, mode, std::move(graph));
  capture->join(stream, tail);
  running().insert(capture);
  running_count.store(running().size(), std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult end_capture(Stream* stream, std::shared_ptr<Graph>* graph) {
  Capture* const capture = stream->capture.load();
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = CUDA_SUCCESS;
  if (capture->state == Capture::State::kInvalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!capture->is_joined()) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  } else {
    *graph = capture->graph;
  }
  capture->end();
  return result;
}

CUresult capture_work(Stream* stream, NodeWork work) {
  Capture* const capture = stream->capture.load();
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->state != Capture::State::kActive) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (work.context == nullptr) work.context = stream->context();
  capture->add(stream, std::move(work));
  return CUDA_SUCCESS;
}

CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

CUresult check_legacy_use(Context* context) {
  if (running_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(graph_mutex());
  for (Capture* capture : running()) {
    for (const auto& [stream, tail] : capture->tails) {
      const bool depends = stream->context() == context &&
                           stream->kind() != Stream::Kind::kNonBlocking &&
                           capture->state == Capture::State::kActive;
      if (!depends) continue;
      invalidate(capture);
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return CUDA_SUCCESS;
}

CUresult refuse_in_capture(Stream* stream) {
  if (stream->capture.load(std::memory_order_acquire) == nullptr) return CUDA_SUCCESS;
  const std::lock_guard lock(graph_mutex());
  Capture* const capture = stream->capture.load();
  if (capture == nullptr) return CUDA_SUCCESS;
  invalidate(capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult refuse_captured(Event* event) {
  if (event->captured_in == nullptr) return CUDA_SUCCESS;
  const std::lock_guard lock(graph_mutex());
  const std::lock_guard event_lock(event->mutex);
  if (event->captured_in == nullptr) return CUDA_SUCCESS;
  invalidate(event->captured_in);
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult refuse_in_capture(const Context* context) {
  if (running_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(graph_mutex());
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : running()) {
    const bool is_inside = std::ranges::any_of(
        capture->tails, [&](const auto& tail) { return tail.first->context() == context; });
    if (!is_inside) continue;
    invalidate(capture);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

void leave_capture(Stream* stream) {
  if (stream->capture.load(std::memory_order_acquire) == nullptr) return;
  const std::lock_guard lock(graph_mutex());
  Capture* const capture = stream->capture.load();
  if (capture == nullptr) return;
  if (capture->origin == stream) {
    capture->end();
  } else {
    capture->tails.erase(stream);
    stream->capture.store(nullptr, std::memory_order_release);
  }
}

CUresult capture_external_event(Stream* stream, Event* event, CUgraphNodeType type) {
  const std::lock_guard lock(graph_mutex());
  if (stream->capture.load() == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeWork work;
  work.type = type;
  work.event = event;
  return capture_work(stream, std::move(work));
}

CUresult capture_allocation(Stream* stream, std::size_t bytes, std::uint64_t* address) {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  const auto& visible = driver()->visible;
  const auto ordinal = std::ranges::find(visible, stream->context()->device) - visible.begin();
  parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {static_cast<int>(ordinal)}};
  parameters.bytesize = bytes;
  NodeWork work;
  work.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  CUresult result = GraphMemory::create(stream->context(), parameters, &work.memory);
  if (result != CUDA_SUCCESS) return result;
  const CUdeviceptr made = work.memory->address();
  const std::lock_guard lock(graph_mutex());
  result = capture_work(stream, std::move(work));
  if (result == CUDA_SUCCESS) *address = made;
  return result;
}

CUresult capture_free(Stream* stream, std::uint64_t address) {
  const std::lock_guard lock(graph_mutex());
  NodeWork work;
  const CUresult result = free_work(address, &work);
  return result != CUDA_SUCCESS ? result : capture_work(stream, std::move(work));
}

CUresult capture_operation(Stream* stream, std::unique_ptr<Operation> operation) {
  const std::lock_guard lock(graph_mutex());
  NodeWork work;
  work.type = operation->node_type();
  work.operation = std::move(operation);
  return capture_work(stream, std::move(work));
}

bool capture_event_record(Stream* stream, Event* event, CUresult* result) {
  if (running_count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(graph_mutex());
  Capture* const capture = stream->capture.load();
  if (capture == nullptr) return false;
  if (capture->state != Capture::State::kActive) {
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return true;
  }
  const std::lock_guard event_lock(event->mutex);
  event->captured_in = capture;
  capture->events[event] = capture->tails[stream];
  *result = CUDA_SUCCESS;
  return true;
}

bool capture_event_wait(Stream* stream, Event* event, CUresult* result) {
  if (running_count.load(std::memory_order_acquire) == 0 && event->captured_in == nullptr) {
    return false;
  }
  const std::lock_guard lock(graph_mutex());
  const std::lock_guard event_lock(event->mutex);
  Capture* const here = stream->capture.load();
  Capture* const there = event->captured_in;
  if (here == nullptr && there == nullptr) return false;
  if (here != nullptr && here->state != Capture::State::kActive) {
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (there == nullptr) {
    // A captured stream can't depend on work outside the capture.
    invalidate(here);
    *result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  } else if (there->state != Capture::State::kActive) {
    if (here != nullptr) invalidate(here);
    *result = there->state == Capture::State::kInvalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                           : CUDA_ERROR_CAPTURED_EVENT;
  } else if (here != nullptr && here != there) {
    invalidate(here);
    invalidate(there);
    *result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
  } else if (stream->kind() == Stream::Kind::kLegacy) {
    invalidate(there);
    *result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  } else {
    there->join(stream, there->events[event]);
    *result = CUDA_SUCCESS;
  }
  return true;
}

CUresult check_unsafe_call() {
  if (running_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const std::lock_guard lock(graph_mutex());
  bool is_forbidden = false;
  for (Capture* capture : running()) {
    if (!forbids(*capture)) continue;
    invalidate(capture);
    is_forbidden = true;
  }
  return is_forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

}  // namespace plexrl::simgpu
