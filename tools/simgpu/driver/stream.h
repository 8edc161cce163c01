#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/simgpu/driver/operation.h"

namespace plexrl::simgpu {

struct Context;

/// The end of one enqueued item. Shared by the queue, by events, and by whoever waits.
class Completion {
 public:
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// Device time of the end; meaningful when is_done().
  std::uint64_t end_ns() const { return end_ns_.load(std::memory_order_relaxed); }
  void wait() const;  ///< blocks the calling thread
  void finish(std::uint64_t end_ns);
  /// When this host got there; later than end_ns() where it lags.
  std::uint64_t finished_ns() const { return finished_ns_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> done_{false};
  std::atomic<std::uint64_t> end_ns_{0};
  std::atomic<std::uint64_t> finished_ns_{0};
};
using CompletionPtr = std::shared_ptr<Completion>;

/// What a capture collects; defined by the graph code. A stream in capture hands its operations to
/// it.
class Capture;

/// Starts a thread that gets none of the process's signals: they belong to the job's own threads.
std::thread start_quiet_thread(const char* name, std::function<void()> function);

/// A CUstream is the address of a Stream. Items run one after the other on the stream's thread,
/// which is started with the first item, has all signals blocked and is called simgpu-stream.
///
/// Threads: any thread may enqueue and query. Lock order: Context::mutex, then Stream::mutex_.
class Stream {
 public:
  enum class Kind { kLegacy, kPerThread, kBlocking, kNonBlocking };
  Stream(Context* context, Kind kind, int priority);
  ~Stream();  ///< runs what is queued to its end first
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Enqueues work behind everything earlier in this stream and, by the rules of the legacy default
  /// stream, behind that of the others ("Stream synchronization behavior", CUDA driver API). Blocks
  /// while the queue is full.
  CompletionPtr enqueue(std::unique_ptr<Operation> operation);
  /// Later items wait for `completion` too.
  void wait_for(CompletionPtr completion);
  /// The end of everything enqueued so far; nullptr when nothing ever was.
  CompletionPtr last() const;
  bool is_idle() const;      ///< everything enqueued so far has ended
  void synchronize() const;  ///< blocks until then

  Context* context() const { return context_; }
  Kind kind() const { return kind_; }
  int priority() const { return priority_; }
  std::uint64_t id() const { return id_; }

  /// Non-null while the stream is in capture (cuStreamBeginCapture); owned by the graph code,
  /// guarded by its mutex.
  std::atomic<Capture*> capture{nullptr};

 private:
  struct Item {
    std::unique_ptr<Operation> operation;
    std::vector<CompletionPtr> after;
    CompletionPtr done;
    std::uint64_t submitted_ns;
  };
  void work();
  void run_item(Item& item);
  std::uint64_t draw_stagger();

  Context* const context_;
  const Kind kind_;
  const int priority_;
  const std::uint64_t id_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  std::size_t outstanding_ = 0;
  std::vector<CompletionPtr> pending_waits_;
  CompletionPtr last_;
  std::uint64_t ready_ns_ =
      0;  ///< device time at which the previous item ended; the stream thread's own
  std::uint64_t finished_ns_ = 0;  ///< when this host was done with it; the stream thread's own
  std::uint64_t staggered_ = 0;    ///< items drawn for; the stream thread's own
  std::thread thread_;
  bool stopping_ = false;
};

/// Makes a stream and adds it to its context.
Stream* make_stream(Context* context, Stream::Kind kind, int priority);
/// Whether `stream` is a living stream of this process; safe for any address.
bool is_stream(const Stream* stream);
/// Takes a stream out of its context and makes its handle stale; what is queued runs to its end,
/// and then the object goes (cuStreamDestroy: "resources will be released once the device has
/// completed all work"). False: no living stream.
bool retire_stream(Stream* stream);

/// Waits for everything enqueued in the context so far.
void finish_all_work(Context* context);

/// A CUevent is the address of an Event.
struct Event {
  explicit Event(unsigned flags_in, Context* context_in) : flags(flags_in), context(context_in) {}
  unsigned flags;
  Context* context;
  std::mutex mutex;
  CompletionPtr recorded;          ///< nullptr: never recorded, which counts as done
  Capture* captured_in = nullptr;  ///< recorded inside a capture; owned by the graph code
  void* captured_node = nullptr;
};

/// The Stream that a handle means: NULL and CU_STREAM_LEGACY are the current context's legacy
/// stream (or, in the per-thread forms, NULL means CU_STREAM_PER_THREAD); answers
/// CUDA_ERROR_INVALID_HANDLE or INVALID_CONTEXT otherwise.
CUresult find_stream(CUstream handle, bool per_thread, Stream** stream);
bool is_event(CUevent handle);

/// Where every call that makes device work ends: enqueues the operation, or adds it to the capture
/// that the stream is in. *done (may be null) is set to the completion, or to nullptr in a capture.
CUresult submit(CUstream handle, bool per_thread, std::unique_ptr<Operation> operation,
                CompletionPtr* done = nullptr);

/// Defined by the graph code (graph_capture.cc): adds a node for `operation` to the capture of
/// `stream`.
CUresult capture_operation(Stream* stream, std::unique_ptr<Operation> operation);
/// Defined by the graph code: cuEventRecord and cuStreamWaitEvent on streams in capture. Return
/// false when neither the stream nor the event is in a capture, so that the ordinary path goes on.
bool capture_event_record(Stream* stream, Event* event, CUresult* result);
bool capture_event_wait(Stream* stream, Event* event, CUresult* result);
/// Defined by the graph code: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (and the capture is
/// invalidated) when the calling thread may not make an unsafe call (cuMemAlloc, cuCtxSynchronize,
/// cuStreamQuery on a captured stream …) just now.
CUresult check_unsafe_call();
/// Defined by the graph code: what a call that waits for a stream, or asks whether it is idle,
/// answers when the stream is in a capture: STREAM_CAPTURE_UNSUPPORTED, and the capture is
/// invalidated.
CUresult refuse_in_capture(Stream* stream);
/// The same for an event that was recorded in a capture (CUDA_ERROR_CAPTURED_EVENT), and for a
/// context with a stream in a capture.
CUresult refuse_captured(Event* event);
CUresult refuse_in_capture(const Context* context);
/// Defined by the graph code: CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, and the capture is invalidated,
/// when work on the legacy stream of `context` would depend on a blocking stream that is in a
/// capture.
CUresult check_legacy_use(Context* context);
/// Defined by the graph code: CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL, which become
/// event nodes of the stream's capture; INVALID_VALUE outside one.
CUresult capture_external_event(Stream* stream, Event* event, CUgraphNodeType type);
/// Defined by the graph code: a stream that is destroyed leaves its capture, which ends with its
/// origin.
void leave_capture(Stream* stream);
/// Defined by the graph code: cuMemAllocAsync and cuMemFreeAsync on a stream in a capture become
/// allocation and free nodes. What is freed must be the allocation of a graph (else INVALID_VALUE).
CUresult capture_allocation(Stream* stream, std::size_t bytes, std::uint64_t* address);
CUresult capture_free(Stream* stream, std::uint64_t address);

}  // namespace plexrl::simgpu
