#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "interpose/cuda_api.h"
#include "shim/hot.h"

namespace plexrl::shim {

/// What one thread submitted to one stream.
///
/// `submitted` is written by the owning thread, before the driver is called: the thread's number of
/// gated calls at the last submission. `finished` belongs to whoever looks (Activity, under its
/// lock): the number up to which all is known to have finished. Work may be outstanding while they
/// differ.
struct alignas(64) StreamMark {
  std::atomic<std::uint64_t> submitted{0};
  std::uint64_t finished = 0;
  std::atomic<CUstream> stream{nullptr};  ///< null: belongs to no stream any more, to be reused
  CUcontext context = nullptr;            ///< of the stream; null for the legacy default stream
  CUevent event = nullptr;     ///< per-thread default stream only, recorded by the thread
  StreamMark* next = nullptr;  ///< of this slot; set before the mark is published
};

/// One thread's own line of gate state: nobody else writes `depth`, `calls` or the marks'
/// `submitted`.
///
/// Slots are never freed. A thread that ends leaves its slot, with marks of work that may still
/// run, to the next new thread. Cost on the hot path: two loads, three stores, no sharing.
struct alignas(64) ThreadSlot {
  static constexpr int kCachedStreamsLog2 = 5;
  static constexpr std::size_t kCachedStreams = std::size_t{1} << kCachedStreamsLog2;

  /// Calls of this thread inside the driver; calls inside calls pass the gate.
  std::atomic<std::uint32_t> depth{0};
  /// 1: leave() has more to do than to count down (an event to record).
  std::uint32_t attention = 0;
  std::atomic<std::uint64_t> calls{0};

  /// Calls past the gate that are inside the driver, and when the last one left; counted only where
  /// the job may be checkpointed (absence.h).
  std::atomic<std::uint32_t> in_driver{0};
  std::atomic<std::uint64_t> last_in_driver_ns{0};

  /// Direct-mapped: the mark for a stream handle. Emptied by whoever destroys the stream.
  struct Cached {
    std::atomic<CUstream> stream{nullptr};
    StreamMark* mark = nullptr;
  };
  Cached cache[kCachedStreams];

  std::atomic<StreamMark*> marks{nullptr};  ///< all of this slot; grows only
  StreamMark* to_record = nullptr;          ///< what `attention` is about
  std::atomic<bool> in_use{true};
  ThreadSlot* next = nullptr;  ///< of all slots; set before the slot is published

  /// Fibonacci hashing: handles are addresses with a common stride.
  static std::size_t index(CUstream stream) noexcept {
    return reinterpret_cast<std::uintptr_t>(stream) * 0x9E3779B97F4A7C15u >>
           (64 - kCachedStreamsLog2);
  }
};

/// This thread's slot; null before its first gated call and after its end. Initial-exec: one load.
extern constinit thread_local ThreadSlot* this_slot __attribute__((tls_model("initial-exec")));

/// All slots ever made, newest first; follow `next`.
ThreadSlot* all_slots() noexcept;

/// Makes or reuses a slot for this thread. Null only when there is no memory.
PLEXRL_COLD ThreadSlot* claim_slot() noexcept;

/// In the child of a fork: the other threads are gone, and so is what they were inside of.
void reset_slots_after_fork() noexcept;

}  // namespace plexrl::shim
