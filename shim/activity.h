#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/thread_slot.h"

namespace plexrl::shim {

/// Whether anything this process submitted is still outstanding, as far as streams can tell.
///
/// Each thread notes its streams in its slot; here they are queried: explicit streams by
/// cuStreamQuery, the legacy default stream in every known context, a per-thread default stream by
/// an event that its own thread records after each submission (no other thread can name that
/// stream). cuCtxSynchronize is never used. Queries run in relaxed capture mode; while a capture is
/// in progress none is made, because querying a captured stream would break the capture, and the
/// answer is "busy".
///
/// Threads: job threads call mark, record_own_event and the begin/end/forget functions; one thread
/// at a time looks. `mutex_` is held during look() and while a capture begins or a stream goes
/// away, so that no stream is queried that is being destroyed or has begun to capture. None of the
/// driver calls made under it waits for work.
class Activity {
 public:
  /// What a look found.
  struct Look {
    bool finished = false;           ///< nothing outstanding, nobody inside the driver
    std::uint32_t inside = 0;        ///< threads inside the driver
    std::uint32_t busy = 0;          ///< streams with unfinished work
    CUstream busy_stream = nullptr;  ///< one of them
    bool capturing = false;
    bool progressed = false;  ///< something that was outstanding at the last look has finished
  };
  Look look();

  /// Whether a capture is in progress anywhere in the process.
  bool is_capturing();

  /// Slow half of Gate::mark: finds or makes this thread's mark for `stream`.
  void mark(ThreadSlot* slot, CUstream stream, std::uint64_t calls) noexcept;
  /// After a submission to this thread's own default stream.
  void record_own_event(ThreadSlot* slot) noexcept;

  /// Around the driver's call that begins or ends a capture, or destroys a stream: hold the lock.
  [[nodiscard]] std::unique_lock<std::mutex> exclude_looks() { return std::unique_lock(mutex_); }
  // The functions below need the lock of exclude_looks().
  void capture_began(CUstream stream);
  void capture_ended(CUstream stream);
  void stream_created(CUstream stream, CUcontext context);
  /// Before `stream` is destroyed: what it still runs is followed by an event instead.
  void stream_ends(CUstream stream);
  /// Before `context` is destroyed: everything in it ends with it.
  void context_ends(CUcontext context);

 private:
  struct Trailing {
    CUevent event;
    CUcontext context;
  };
  struct Created {
    CUstream stream;
    CUcontext context;
  };

  bool mark_finished(StreamMark& mark, Look& look);
  bool legacy_streams_finished();
  bool every_stream_finished();
  void look_at_trailing(Look& look);

  std::mutex mutex_;
  std::vector<CUstream> capturing_;
  std::vector<Trailing> trailing_;
  std::vector<Created> created_;
  std::uint32_t outstanding_at_last_look_ = 0;
};

/// That of this process; never destroyed.
Activity& activity();

}  // namespace plexrl::shim
