#include "shim/activity.h"

#include <algorithm>
#include <new>

#include "interpose/driver.h"
#include "shim/contexts.h"
#include "shim/driver_scope.h"

namespace plexrl::shim {
namespace {

const CUstream kEveryStream = reinterpret_cast<CUstream>(~std::uintptr_t{0});

/// NOT_READY says that something runs. The driver says nothing any more once it has closed, in
/// exit(): what ran may run until the process has ended. Any other error means that nothing does:
/// the stream or its whole context has failed.
bool is_finished(CUresult result) noexcept {
  return result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_DEINITIALIZED;
}

StreamMark* find_mark(ThreadSlot* slot, CUstream stream, CUcontext context) noexcept {
  for (StreamMark* mark = slot->marks.load(std::memory_order_relaxed); mark != nullptr;
       mark = mark->next) {
    if (mark->stream.load(std::memory_order_relaxed) != stream) continue;
    if (stream != CU_STREAM_PER_THREAD || mark->context == context) return mark;
  }
  return nullptr;
}

/// A mark whose stream is gone, else a new one, which is not in the slot's list yet.
StreamMark* unused_mark(ThreadSlot* slot, bool* is_new) noexcept {
  *is_new = false;
  for (StreamMark* mark = slot->marks.load(std::memory_order_relaxed); mark != nullptr;
       mark = mark->next) {
    if (mark->stream.load(std::memory_order_relaxed) == nullptr) return mark;
  }
  *is_new = true;
  auto* const mark = new (std::nothrow) StreamMark;
  if (mark == nullptr) return nullptr;
  mark->next = slot->marks.load(std::memory_order_relaxed);
  return mark;
}

CUcontext context_of(CUstream stream) noexcept {
  CUcontext context = nullptr;
  if (stream == CU_STREAM_LEGACY || stream == kEveryStream) return nullptr;
  if (stream == CU_STREAM_PER_THREAD) {
    driver.cuCtxGetCurrent(&context);
  } else {
    const RelaxedCapture relaxed;
    // Queries need some current context; an explicit stream answers under any.
    if (driver.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) driver.cuCtxGetCurrent(&context);
  }
  return context;
}

}  // namespace

Activity& activity() {
  static Activity& instance = *new Activity;
  return instance;
}

void Activity::mark(ThreadSlot* slot, CUstream stream, std::uint64_t calls) noexcept {
  // Only a per-thread stream needs its context to be told apart; the others are asked once.
  CUcontext context = stream == CU_STREAM_PER_THREAD ? context_of(stream) : nullptr;
  StreamMark* mark = find_mark(slot, stream, context);
  if (mark == nullptr) {
    context = context_of(stream);
    const std::lock_guard lock(mutex_);  // look() must not see half of a reused mark
    bool is_new = false;
    mark = unused_mark(slot, &is_new);
    if (mark == nullptr) return;
    mark->stream.store(stream, std::memory_order_relaxed);
    mark->context = context;
    if (stream == CU_STREAM_PER_THREAD) {
      const RelaxedCapture relaxed;
      driver.cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING);
    }
    mark->submitted.store(calls, std::memory_order_release);
    if (is_new) slot->marks.store(mark, std::memory_order_release);  // publishes it to look()
  } else {
    mark->submitted.store(calls, std::memory_order_release);
  }
  if (stream == CU_STREAM_PER_THREAD) {
    // Never cached: each submission has to come by here and leave an event behind.
    slot->to_record = mark;
    slot->attention = 1;
    return;
  }
  ThreadSlot::Cached& cached = slot->cache[ThreadSlot::index(stream)];
  cached.mark = mark;
  cached.stream.store(stream, std::memory_order_relaxed);
}

void Activity::record_own_event(ThreadSlot* slot) noexcept {
  StreamMark* const mark = slot->to_record;
  const RelaxedCapture relaxed;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver.cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status) != CUDA_SUCCESS) return;
  // In a capture the record would become a node of the job's graph.
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) {
    driver.cuEventRecord(mark->event, CU_STREAM_PER_THREAD);
  }
}

Activity::Look Activity::look() {
  const std::lock_guard lock(mutex_);
  Look look;
  look.capturing = !capturing_.empty();
  const RelaxedCapture relaxed;
  std::uint32_t outstanding = 0;
  for (ThreadSlot* slot = all_slots(); slot != nullptr; slot = slot->next) {
    for (StreamMark* mark = slot->marks.load(std::memory_order_acquire); mark != nullptr;
         mark = mark->next) {
      // Acquire, before the depth is read: a submission whose mark we see has its depth visible
      // too, so a depth of 0 then means that the driver has the work.
      const std::uint64_t submitted = mark->submitted.load(std::memory_order_acquire);
      if (submitted == mark->finished) continue;
      const bool in_driver = slot->depth.load(std::memory_order_acquire) != 0;
      if (!in_driver && !look.capturing && mark_finished(*mark, look)) {
        mark->finished = submitted;
      } else {
        ++outstanding;
      }
    }
    if (slot->depth.load(std::memory_order_acquire) != 0) ++look.inside;
  }
  if (!look.capturing) look_at_trailing(look);
  outstanding += static_cast<std::uint32_t>(trailing_.size());
  look.progressed = outstanding < outstanding_at_last_look_;
  outstanding_at_last_look_ = outstanding;
  look.finished = outstanding == 0 && look.inside == 0 && !look.capturing;
  return look;
}

bool Activity::is_capturing() {
  const std::lock_guard lock(mutex_);
  return !capturing_.empty();
}

bool Activity::mark_finished(StreamMark& mark, Look& look) {
  const CUstream stream = mark.stream.load(std::memory_order_relaxed);
  bool finished = true;
  if (stream == nullptr) return true;
  if (stream == CU_STREAM_LEGACY) {
    finished = legacy_streams_finished();
  } else if (stream == kEveryStream) {
    finished = every_stream_finished();
  } else if (stream == CU_STREAM_PER_THREAD) {
    finished = is_finished(driver.cuEventQuery(mark.event));
  } else {
    const PushedContext pushed(mark.context);
    finished = is_finished(driver.cuStreamQuery(stream));
  }
  if (!finished) {
    ++look.busy;
    look.busy_stream = stream;
  }
  return finished;
}

bool Activity::legacy_streams_finished() {
  for (const Contexts::Known& known : contexts().all()) {
    const PushedContext pushed(known.context);
    const CUresult result = pushed.ok() ? driver.cuStreamQuery(CU_STREAM_LEGACY) : pushed.result();
    if (!is_finished(result)) return false;
  }
  return true;
}

bool Activity::every_stream_finished() {
  for (const Created& created : created_) {
    const PushedContext pushed(created.context);
    if (!is_finished(driver.cuStreamQuery(created.stream))) return false;
  }
  return legacy_streams_finished();
}

void Activity::look_at_trailing(Look& look) {
  std::erase_if(trailing_, [&](const Trailing& trailing) {
    const PushedContext pushed(trailing.context);
    if (!is_finished(driver.cuEventQuery(trailing.event))) {
      ++look.busy;
      return false;
    }
    driver.cuEventDestroy_v2(trailing.event);
    return true;
  });
}

void Activity::capture_began(CUstream stream) { capturing_.push_back(stream); }

void Activity::capture_ended(CUstream stream) {
  const auto it = std::find(capturing_.begin(), capturing_.end(), stream);
  if (it != capturing_.end()) capturing_.erase(it);
}

void Activity::stream_created(CUstream stream, CUcontext context) {
  created_.push_back({stream, context});
}

void Activity::stream_ends(CUstream stream) {
  capture_ended(stream);
  std::erase_if(created_, [&](const Created& created) { return created.stream == stream; });
  CUcontext context = nullptr;
  bool outstanding = false;
  for (ThreadSlot* slot = all_slots(); slot != nullptr; slot = slot->next) {
    for (StreamMark* mark = slot->marks.load(std::memory_order_acquire); mark != nullptr;
         mark = mark->next) {
      if (mark->stream.load(std::memory_order_relaxed) != stream) continue;
      const std::uint64_t submitted = mark->submitted.load(std::memory_order_acquire);
      outstanding = outstanding || submitted != mark->finished;
      context = mark->context;
      mark->finished = submitted;
      mark->stream.store(nullptr, std::memory_order_relaxed);
    }
    ThreadSlot::Cached& cached = slot->cache[ThreadSlot::index(stream)];
    if (cached.stream.load(std::memory_order_relaxed) == stream) {
      cached.stream.store(nullptr, std::memory_order_relaxed);
    }
  }
  if (!outstanding) return;
  const RelaxedCapture relaxed;
  const PushedContext pushed(context);
  CUevent event = nullptr;
  if (driver.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) return;
  if (driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
  if (driver.cuEventRecord(event, stream) == CUDA_SUCCESS) {
    trailing_.push_back({event, context});
  } else {
    driver.cuEventDestroy_v2(event);
  }
}

void Activity::context_ends(CUcontext context) {
  std::erase_if(trailing_, [&](const Trailing& trailing) { return trailing.context == context; });
  std::erase_if(created_, [&](const Created& created) {
    if (created.context != context) return false;
    capture_ended(created.stream);
    return true;
  });
  for (ThreadSlot* slot = all_slots(); slot != nullptr; slot = slot->next) {
    for (StreamMark* mark = slot->marks.load(std::memory_order_acquire); mark != nullptr;
         mark = mark->next) {
      if (mark->context != context) continue;
      const CUstream stream = mark->stream.load(std::memory_order_relaxed);
      mark->finished = mark->submitted.load(std::memory_order_acquire);
      mark->stream.store(nullptr, std::memory_order_relaxed);
      ThreadSlot::Cached& cached = slot->cache[ThreadSlot::index(stream)];
      if (cached.stream.load(std::memory_order_relaxed) == stream) {
        cached.stream.store(nullptr, std::memory_order_relaxed);
      }
    }
  }
}

}  // namespace plexrl::shim
