#include "shim/gate.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "interpose/no_cancel.h"
#include "shim/absence.h"
#include "shim/activity.h"
#include "shim/futex.h"

namespace plexrl::shim {
namespace {

int membarrier(int command) noexcept {
  const int saved_errno = errno;
  const long result = ::syscall(SYS_membarrier, command, 0, 0);
  errno = saved_errno;
  return static_cast<int>(result);
}

}  // namespace

void Gate::prepare(bool may_use_membarrier) noexcept {
  needs_fence_ = !may_use_membarrier || membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
}

void Gate::barrier() const noexcept {
  if (needs_fence_) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  }
}

void Gate::enter_first(CUstream stream) noexcept {
  // No memory for a slot: the call would be invisible to a drain. It is refused nowhere, because a
  // process without 2 KiB is about to die of something else.
  if (claim_slot() == nullptr) return;
  enter(stream);
}

void Gate::enter_slow(ThreadSlot* slot, std::uint32_t depth) noexcept {
  if (depth != 0) return;
  const interpose::NoCancel whole;
  while (true) {
    const std::uint32_t word = word_.load(std::memory_order_acquire);
    if (word == kOpen) return;
    if (word == kOpenFenced) {
      // Pairs with the fence in close(): one of the two sides sees the other's store.
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (word_.load(std::memory_order_acquire) == kOpenFenced) return;
    }
    slot->depth.store(0, std::memory_order_release);
    if (word == kArmed) {
      std::uint32_t expected = kArmed;
      if (word_.compare_exchange_strong(expected, open_word(), std::memory_order_acq_rel)) {
        hooks_.busy_again();
      }
    }
    const bool passes = word == kClosed && !wait();
    slot->depth.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (passes) return;
  }
}

bool Gate::wait() noexcept {
  // While the process is checkpointed the hook's questions would block in the driver: first it
  // comes back.
  const Absence::Call inside;
  const std::uint32_t turn = turn_.load(std::memory_order_acquire);
  waiters_.fetch_add(1, std::memory_order_acq_rel);
  const bool waits = hooks_.about_to_wait();
  // open() writes the word before it counts the turn up, so a sleeper can't miss it.
  if (waits && !is_open()) {
    const std::uint32_t depth = absence.step_out();
    futex_wait(turn_, turn);
    absence.step_in(depth);
  }
  waiters_.fetch_sub(1, std::memory_order_acq_rel);
  return waits;
}

bool Gate::try_enter_host() noexcept {
  ThreadSlot* const slot = this_slot != nullptr ? this_slot : claim_slot();
  if (slot == nullptr) return false;
  const std::uint32_t depth = slot->depth.load(std::memory_order_relaxed);
  slot->depth.store(depth + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t word = word_.load(std::memory_order_acquire);
  if (depth != 0 || word == kOpen || word == kOpenFenced) return true;
  if (word == kArmed) {
    std::uint32_t expected = kArmed;
    if (word_.compare_exchange_strong(expected, open_word(), std::memory_order_acq_rel)) {
      hooks_.busy_again();
    }
    if (expected != kClosed) return true;
  }
  slot->depth.store(depth, std::memory_order_release);
  return false;
}

void Gate::mark_slow(ThreadSlot* slot, CUstream stream, std::uint64_t calls) noexcept {
  activity().mark(slot, stream, calls);
}

void Gate::leave_slow(ThreadSlot* slot) noexcept {
  slot->attention = 0;
  activity().record_own_event(slot);
}

void Gate::open() noexcept {
  word_.store(open_word(), std::memory_order_release);
  turn_.fetch_add(1, std::memory_order_acq_rel);
  futex_wake_all(turn_);
}

void Gate::close() noexcept {
#ifdef PLEXRL_MUTANT_GATE
  return;  // test builds only: the suite must notice a gate that never closes
#endif
  word_.store(kClosed, std::memory_order_seq_cst);
  barrier();
}

bool Gate::arm() noexcept {
  std::uint32_t expected = open_word();
  if (!word_.compare_exchange_strong(expected, kArmed, std::memory_order_seq_cst)) return false;
  barrier();
  return true;
}

void Gate::disarm() noexcept {
  std::uint32_t expected = kArmed;
  word_.compare_exchange_strong(expected, open_word(), std::memory_order_acq_rel);
}

std::uint32_t Gate::threads_inside() noexcept {
  std::uint32_t inside = 0;
  for (const ThreadSlot* slot = all_slots(); slot != nullptr; slot = slot->next) {
    if (slot->depth.load(std::memory_order_acquire) != 0) ++inside;
  }
  return inside;
}

std::uint64_t Gate::calls() noexcept {
  std::uint64_t sum = 0;
  for (const ThreadSlot* slot = all_slots(); slot != nullptr; slot = slot->next) {
    sum += slot->calls.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace plexrl::shim
