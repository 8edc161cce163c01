#pragma once

#include <atomic>
#include <cstdint>

#include "shim/hot.h"
#include "shim/thread_slot.h"

namespace plexrl::shim {

/// Keeps threads of the job out of the driver while the process is checkpointed
/// (--evict=checkpoint): a call that the driver itself would block is not seen by anybody, and
/// nobody would bring the process back for it. A thread that comes meanwhile asks for the process's
/// return and waits here.
///
/// The gate keeps out what submits work, and a thread that is to wait there comes by here first
/// (Gate::wait); this is for every other call. Disabled it costs a call one
/// load and a predicted branch; enabled also two stores and a look at a coarse clock.
///
/// Threads: Call by any; begin, end by the agent.
class Absence {
 public:
  /// Around a call of the job that goes to the driver past the gate. Calls inside calls pass.
  class Call {
   public:
    PLEXRL_HOT Call() noexcept;
    PLEXRL_HOT ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    ThreadSlot* slot_ = nullptr;
  };

  /// For a process whose job may be checkpointed; before its first context. `about_to_wait` is
  /// called on the job's thread before it sleeps.
  void enable(void (*about_to_wait)() noexcept) noexcept {
    about_to_wait_.store(about_to_wait, std::memory_order_relaxed);
    enabled_.store(true, std::memory_order_relaxed);
  }

  /// From its return on no thread is in the driver, or goes there before `end`. Otherwise why not:
  /// it is not enabled, a thread is inside, or was within the last `quiet_ns`.
  const char* begin(std::uint64_t quiet_ns) noexcept;
  void end() noexcept;
  bool is_on() const noexcept { return away_.load(std::memory_order_acquire); }
  /// Threads that wait for the end.
  std::uint32_t waiters() const noexcept { return waiters_.load(std::memory_order_acquire); }

  /// A thread that is about to sleep at the gate is in the driver no more. Returns what `step_in`
  /// needs.
  std::uint32_t step_out() noexcept;
  void step_in(std::uint32_t depth) noexcept;

 private:
  PLEXRL_COLD ThreadSlot* enter() noexcept;
  PLEXRL_COLD static void leave(ThreadSlot* slot) noexcept;
  void enter_outermost(ThreadSlot* slot) noexcept;
  void wait() noexcept;

  std::atomic<bool> enabled_{false};
  std::atomic<void (*)() noexcept> about_to_wait_{nullptr};
  std::atomic<bool> away_{false};
  std::atomic<std::uint32_t> turn_{0};  ///< counts ends; waiters sleep on it
  std::atomic<std::uint32_t> waiters_{0};
};

/// Of this process.
extern constinit Absence absence;

inline Absence::Call::Call() noexcept {
  if (absence.enabled_.load(std::memory_order_relaxed)) [[unlikely]]
    slot_ = absence.enter();
}
inline Absence::Call::~Call() {
  if (slot_ != nullptr) [[unlikely]]
    leave(slot_);
}

}  // namespace plexrl::shim
