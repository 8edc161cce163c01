#pragma once

#include <atomic>
#include <cstdint>

#include "interpose/cuda_api.h"
#include "shim/hot.h"
#include "shim/thread_slot.h"

namespace plexrl::shim {

/// Where calls that submit work stop while the gang has no lease (docs/architecture.md, invariant
/// 3).
///
/// One gate per process. Open, a call costs a thread two loads of shared words that nobody writes
/// and stores to its own slot. The agent closes it by writing the word and then membarrier(2)
/// PRIVATE_EXPEDITED: after that, a thread has either seen the gate closed, or its depth is visible
/// to the agent. Where the kernel lacks that command, open is kOpenFenced and each call pays a
/// fence.
///
///              open()               arm()                       close()
///     kClosed ---------> kOpen <--------------> kArmed     any ---------> kClosed
///                              first call after
///
/// kArmed: the lease is held and nothing is outstanding. The first call opens the gate again and
/// tells the agent, so that an idle process is polled by nobody and the moment it becomes busy is
/// exact.
///
/// Threads: enter and leave by any thread; open, close, arm by the agent only. No lock is held by a
/// thread that waits. A waiter is woken by open() and by set_passing().
class Gate {
 public:
  enum Word : std::uint32_t { kClosed, kOpen, kOpenFenced, kArmed };

  /// What the slow path calls. All run on the job's thread, outside the gate.
  struct Hooks {
    /// Before a thread sleeps because the gate is closed. False: let the call pass, nobody will
    /// ever open the gate for it.
    bool (*about_to_wait)() noexcept;
    /// A call has just opened an armed gate.
    void (*busy_again)() noexcept;
  };

  constexpr explicit Gate(Hooks hooks) noexcept : hooks_(hooks) {}

  /// Passes, or waits until the gate opens; then notes that `stream` is about to get work.
  /// A call made inside another gated call of the same thread always passes.
  PLEXRL_HOT void enter(CUstream stream) noexcept {
    ThreadSlot* const slot = this_slot;
    if (slot == nullptr) [[unlikely]]
      return enter_first(stream);
    const std::uint32_t depth = count_up(slot);
    // Keeps the compiler from moving the load up; the processor is held by membarrier in close().
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (word_.load(std::memory_order_acquire) != kOpen) [[unlikely]]
      enter_slow(slot, depth);
    mark(slot, stream);
  }

  /// The same for a call that submits nothing but needs memory to be backed meanwhile.
  PLEXRL_HOT void enter_host() noexcept {
    ThreadSlot* const slot = this_slot != nullptr ? this_slot : claim_slot();
    if (slot == nullptr) [[unlikely]]
      return;
    const std::uint32_t depth = count_up(slot);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (word_.load(std::memory_order_acquire) != kOpen) [[unlikely]]
      enter_slow(slot, depth);
  }

  /// Enters without waiting, whatever the gate says: for calls that only give back but may be in
  /// the driver for long. A drain does not finish meanwhile.
  void enter_giving_back() noexcept {
    ThreadSlot* const slot = this_slot != nullptr ? this_slot : claim_slot();
    if (slot == nullptr) return;
    slot->depth.store(slot->depth.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  }

  PLEXRL_HOT void leave() noexcept {
    ThreadSlot* const slot = this_slot;
    if (slot == nullptr) [[unlikely]]
      return;
    if (slot->attention != 0) [[unlikely]]
      leave_slow(slot);
    const std::uint32_t depth = slot->depth.load(std::memory_order_relaxed);
    // Release: whoever sees the depth fall also sees the marks, and that the driver has the work.
    if (depth == 1) [[likely]] {
      slot->depth.store(0, std::memory_order_release);
    } else {
      slot->depth.store(depth - 1, std::memory_order_release);
    }
  }

  /// Enters if that needs no waiting, as one who submits nothing. True: leave() must follow.
  bool try_enter_host() noexcept;

  /// Agent: lets everything pass and wakes the waiters.
  void open() noexcept;

  /// Agent: from its return on, no call passes that was not inside already.
  void close() noexcept;

  /// Agent: from kOpen to kArmed. The caller then looks whether something slipped in, and if so
  /// disarms. False: the gate was not open.
  bool arm() noexcept;
  void disarm() noexcept;

  bool is_open() const noexcept { return word_.load(std::memory_order_acquire) != kClosed; }
  bool is_armed() const noexcept { return word_.load(std::memory_order_acquire) == kArmed; }
  std::uint32_t waiters() const noexcept { return waiters_.load(std::memory_order_acquire); }

  /// Threads inside the driver. After close() it can only fall.
  static std::uint32_t threads_inside() noexcept;
  /// Gated calls so far, of all threads.
  static std::uint64_t calls() noexcept;

  /// Before the first open(): finds out whether the kernel has the barrier. Tests leave it out to
  /// get the fence.
  void prepare(bool may_use_membarrier = true) noexcept;
  bool needs_fence() const noexcept { return needs_fence_; }
  void set_hooks(Hooks hooks) noexcept { hooks_ = hooks; }

 private:
  /// Returns the depth before. The usual depth is stored as a constant, so that the processor need
  /// not wait for the store of the call before to reach this load.
  PLEXRL_HOT static std::uint32_t count_up(ThreadSlot* slot) noexcept {
    const std::uint32_t depth = slot->depth.load(std::memory_order_relaxed);
    if (depth == 0) [[likely]] {
      slot->depth.store(1, std::memory_order_relaxed);
    } else {
      slot->depth.store(depth + 1, std::memory_order_relaxed);
    }
    return depth;
  }

  PLEXRL_HOT void mark(ThreadSlot* slot, CUstream stream) noexcept {
    ThreadSlot::Cached& cached = slot->cache[ThreadSlot::index(stream)];
    const std::uint64_t calls = slot->calls.load(std::memory_order_relaxed) + 1;
    slot->calls.store(calls, std::memory_order_relaxed);
    if (cached.stream.load(std::memory_order_relaxed) != stream) [[unlikely]] {
      return mark_slow(slot, stream, calls);
    }
    // Release, after the depth: pairs with the acquire in Activity::look, which reads the mark
    // first.
    cached.mark->submitted.store(calls, std::memory_order_release);
  }

  PLEXRL_COLD void enter_first(CUstream stream) noexcept;
  PLEXRL_COLD void enter_slow(ThreadSlot* slot, std::uint32_t depth) noexcept;
  PLEXRL_COLD void leave_slow(ThreadSlot* slot) noexcept;
  PLEXRL_COLD void mark_slow(ThreadSlot* slot, CUstream stream, std::uint64_t calls) noexcept;
  bool wait() noexcept;
  void barrier() const noexcept;
  Word open_word() const noexcept { return needs_fence_ ? kOpenFenced : kOpen; }

  std::atomic<std::uint32_t> word_{kClosed};
  std::atomic<std::uint32_t> turn_{0};  ///< counts openings; waiters sleep on it
  std::atomic<std::uint32_t> waiters_{0};
  bool needs_fence_ = false;
  Hooks hooks_;
};

/// The gate of this process.
extern constinit Gate gate;

/// Inside of the gate of this process as long as it lives, for calls that submit nothing. What runs
/// there may throw, for lack of host memory, and the thread is outside again.
class InsideGate {
 public:
  /// Passes, or waits until the gate opens.
  InsideGate() noexcept : is_inside_(true) { gate.enter_host(); }
  /// Only if that needs no waiting.
  static InsideGate if_open() noexcept { return InsideGate(gate.try_enter_host()); }
  /// Without waiting, whatever the gate says (Gate::enter_giving_back).
  static InsideGate giving_back() noexcept {
    gate.enter_giving_back();
    return InsideGate(true);
  }
  ~InsideGate() {
    if (is_inside_) gate.leave();
  }
  InsideGate(const InsideGate&) = delete;
  InsideGate& operator=(const InsideGate&) = delete;

  explicit operator bool() const noexcept { return is_inside_; }

 private:
  explicit InsideGate(bool is_inside) noexcept : is_inside_(is_inside) {}

  bool is_inside_;
};

}  // namespace plexrl::shim
