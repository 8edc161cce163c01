// Events, within a process and between processes.

#include <cstring>
#include <mutex>
#include <set>

#include "tools/simgpu/driver/entry_pair.h"
#include "tools/simgpu/driver/memory_pool.h"
#include "tools/simgpu/driver/shared_event.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint32_t kMagic = 0x45435049;   // "IPCE"
constexpr std::uint64_t kLookNs = 50'000'000;  // a wait looks for exit and deaths so often

/// The 64 bytes of a CUipcEventHandle.
struct EventHandle {
  std::uint32_t magic;
  std::int32_t pid;  ///< of the exporter
  std::uint64_t tag;
  std::uint8_t unused[48];
};
static_assert(sizeof(EventHandle) == sizeof(CUipcEventHandle));

std::mutex events_mutex;
auto& events = *new std::set<Event*>;

/// An event with CU_EVENT_INTERPROCESS: what is waited for and asked is its shared part. `recorded`
/// stands for this process's own records only.
struct InterprocessEvent : Event {
  InterprocessEvent(unsigned flags, Context* context, std::shared_ptr<SharedEvent> shared_part)
      : Event(flags, context), shared(std::move(shared_part)) {}
  const std::shared_ptr<SharedEvent> shared;
};

bool is_interprocess(const Event* event) { return (event->flags & CU_EVENT_INTERPROCESS) != 0; }
InterprocessEvent* interprocess(Event* event) { return static_cast<InterprocessEvent*>(event); }

/// One record of such an event: reached when the operation that holds it is done with, also where
/// an error kept that from running.
class SharedRecord {
 public:
  explicit SharedRecord(std::shared_ptr<SharedEvent> event)
      : event_(std::move(event)), number_(event_->begin_record()) {}
  ~SharedRecord() { event_->finish_record(number_); }
  SharedRecord(const SharedRecord&) = delete;
  SharedRecord& operator=(const SharedRecord&) = delete;

 private:
  const std::shared_ptr<SharedEvent> event_;
  const std::uint64_t number_;
};

void wait_until_reached(const SharedEvent& event, std::uint64_t number) {
  while (!event.is_reached(number) && is_ready()) event.wait(number, kLookNs);
}

CUevent keep(Event* event) {
  const std::lock_guard lock(events_mutex);
  events.insert(event);
  return reinterpret_cast<CUevent>(event);
}

CompletionPtr recorded_end(Event* event) {
  const std::lock_guard lock(event->mutex);
  return event->recorded;
}

CUresult record_event(bool per_thread, CUevent handle, CUstream stream_handle) {
  if (!is_event(handle)) return CUDA_ERROR_INVALID_HANDLE;
  auto* const event = reinterpret_cast<Event*>(handle);
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(stream_handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  if (stream->context() != event->context) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = stream->context()->error.load(); error != CUDA_SUCCESS) return error;
  CUresult captured = CUDA_SUCCESS;
  if (capture_event_record(stream, event, &captured)) return captured;
  std::unique_ptr<Operation> mark = std::make_unique<EmptyOperation>();
  if (is_interprocess(event)) {
    mark = std::make_unique<CallOperation>(
        CU_GRAPH_NODE_TYPE_EMPTY,
        [record = std::make_shared<SharedRecord>(interprocess(event)->shared)](const RunScope&) {
          return CUDA_SUCCESS;
        });
  }
  CompletionPtr done = stream->enqueue(std::move(mark));
  const std::lock_guard lock(event->mutex);
  event->recorded = std::move(done);
  event->captured_in = nullptr;
  event->captured_node = nullptr;
  return CUDA_SUCCESS;
}

CUresult external_event(bool per_thread, CUstream stream_handle, CUevent handle,
                        CUgraphNodeType type) {
  if (!is_event(handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (is_interprocess(reinterpret_cast<Event*>(handle))) return CUDA_ERROR_NOT_SUPPORTED;
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(stream_handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  return capture_external_event(stream, reinterpret_cast<Event*>(handle), type);
}

CUresult record_event_with_flags(bool per_thread, CUevent handle, CUstream stream, unsigned flags) {
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_EVENT_RECORD_EXTERNAL) {
    return external_event(per_thread, stream, handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  }
  return record_event(per_thread, handle, stream);
}

CUresult wait_event(bool per_thread, CUstream stream_handle, CUevent handle, unsigned flags) {
  if (!is_event(handle)) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_EVENT_WAIT_EXTERNAL) {
    return external_event(per_thread, stream_handle, handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  }
  auto* const event = reinterpret_cast<Event*>(handle);
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(stream_handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  CUresult captured = CUDA_SUCCESS;
  if (capture_event_wait(stream, event, &captured)) return captured;
  if (is_interprocess(event)) {
    const auto& shared = interprocess(event)->shared;
    const std::uint64_t number = shared->recorded();
    if (shared->is_reached(number)) return CUDA_SUCCESS;
    stream->enqueue(std::make_unique<CallOperation>(CU_GRAPH_NODE_TYPE_EMPTY,
                                                    [shared, number](const RunScope&) {
                                                      wait_until_reached(*shared, number);
                                                      return CUDA_SUCCESS;
                                                    }));
    return CUDA_SUCCESS;
  }
  CompletionPtr recorded;
  {
    const std::lock_guard lock(event->mutex);
    recorded = event->recorded;
  }
  if (recorded != nullptr && !recorded->is_done()) {
    stream->wait_for(std::move(recorded));
    stream->enqueue(
        std::make_unique<EmptyOperation>());  // the wait itself has a place in the stream's order
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool is_event(CUevent handle) {
  const std::lock_guard lock(events_mutex);
  return events.count(reinterpret_cast<Event*>(handle)) != 0;
}

}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_PAIR(cuStreamWaitEvent, _ptsz, wait_event,
            (CUstream stream, CUevent event, unsigned int flags), stream, event, flags)

SIMGPU_EXPORT CUresult CUDAAPI cuEventCreate(CUevent* handle, unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuEventCreate);
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (handle == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) == 0) {
    *handle = keep(new Event(flags, context));
    return CUDA_SUCCESS;
  }
  auto shared = SharedEvent::make(state_folder(driver()->machine->spec()));
  if (shared == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  *handle = keep(new InterprocessEvent(flags, context, std::move(shared)));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuEventDestroy_v2(CUevent handle) {
  SIMGPU_ENTER(cuEventDestroy_v2);
  const std::lock_guard lock(events_mutex);
  auto* const event = reinterpret_cast<Event*>(handle);
  if (events.erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (is_interprocess(event)) {
    delete interprocess(event);
  } else {
    delete event;
  }
  return CUDA_SUCCESS;
}

SIMGPU_PAIR(cuEventRecord, _ptsz, record_event, (CUevent event, CUstream stream), event, stream)
SIMGPU_PAIR(cuEventRecordWithFlags, _ptsz, record_event_with_flags,
            (CUevent event, CUstream stream, unsigned int flags), event, stream, flags)

SIMGPU_EXPORT CUresult CUDAAPI cuEventQuery(CUevent handle) {
  SIMGPU_ENTER(cuEventQuery);
  if (!is_event(handle)) return CUDA_ERROR_INVALID_HANDLE;
  auto* const event = reinterpret_cast<Event*>(handle);
  if (const CUresult refused = refuse_captured(event); refused != CUDA_SUCCESS) return refused;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  if (const CUresult error = event->context->error.load(); error != CUDA_SUCCESS) return error;
  if (is_interprocess(event)) {
    const SharedEvent& shared = *interprocess(event)->shared;
    return shared.is_reached(shared.recorded()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  const CompletionPtr end = recorded_end(event);
  return end == nullptr || end->is_done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIMGPU_EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  SIMGPU_ENTER(cuEventSynchronize);
  if (!is_event(handle)) return CUDA_ERROR_INVALID_HANDLE;
  auto* const event = reinterpret_cast<Event*>(handle);
  if (const CUresult refused = refuse_captured(event); refused != CUDA_SUCCESS) return refused;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  if (is_interprocess(event)) {
    const auto shared = interprocess(event)->shared;
    wait_until_reached(*shared, shared->recorded());
  } else if (const CompletionPtr end = recorded_end(event); end != nullptr) {
    end->wait();
  }
  trim_pools(event->context->device);
  return event->context->error.load();
}

SIMGPU_EXPORT CUresult CUDAAPI cuEventElapsedTime_v2(float* milliseconds, CUevent start,
                                                     CUevent end) {
  SIMGPU_ENTER(cuEventElapsedTime_v2);
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_event(start) || !is_event(end)) return CUDA_ERROR_INVALID_HANDLE;
  auto* const first = reinterpret_cast<Event*>(start);
  auto* const second = reinterpret_cast<Event*>(end);
  if (((first->flags | second->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  const CompletionPtr from = recorded_end(first);
  const CompletionPtr to = recorded_end(second);
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->is_done() || !to->is_done()) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(
      static_cast<double>(static_cast<std::int64_t>(to->end_ns() - from->end_ns())) * 1e-6);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

SIMGPU_EXPORT CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle* out, CUevent event) {
  SIMGPU_ENTER_CONTEXT(cuIpcGetEventHandle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_event(event) || !is_interprocess(reinterpret_cast<Event*>(event)))
    return CUDA_ERROR_INVALID_HANDLE;
  EventHandle handle{};
  handle.magic = kMagic;
  handle.pid = driver()->pid;
  handle.tag = interprocess(reinterpret_cast<Event*>(event))->shared->tag();
  std::memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle in) {
  SIMGPU_ENTER_CONTEXT(cuIpcOpenEventHandle);
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EventHandle handle;
  std::memcpy(&handle, &in, sizeof handle);
  if (handle.magic != kMagic) return CUDA_ERROR_INVALID_HANDLE;
  if (handle.pid == driver()->pid) return CUDA_ERROR_INVALID_CONTEXT;  // for other processes only
  auto shared = SharedEvent::open(state_folder(driver()->machine->spec()), handle.tag);
  if (shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *event = keep(new InterprocessEvent(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, context,
                                      std::move(shared)));
  return CUDA_SUCCESS;
}
