#include "shim/absence.h"

#include <time.h>

#include <cerrno>

#include "interpose/no_cancel.h"
#include "shim/futex.h"

namespace plexrl::shim {
namespace {

constexpr int kLooks = 20;  ///< for a thread inside to leave
constexpr timespec kBetweenLooks{0, 1'000'000};

std::uint64_t coarse_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

bool is_any_inside() noexcept {
  for (const ThreadSlot* slot = all_slots(); slot != nullptr; slot = slot->next) {
    if (slot->in_driver.load() != 0) return true;
  }
  return false;
}

bool was_any_inside_since(std::uint64_t ns) noexcept {
  for (const ThreadSlot* slot = all_slots(); slot != nullptr; slot = slot->next) {
    if (slot->last_in_driver_ns.load(std::memory_order_relaxed) > ns) return true;
  }
  return false;
}

}  // namespace

constinit Absence absence;

ThreadSlot* Absence::enter() noexcept {
  ThreadSlot* const slot = this_slot != nullptr ? this_slot : claim_slot();
  if (slot == nullptr) return nullptr;
  const std::uint32_t depth = slot->in_driver.load(std::memory_order_relaxed);
  if (depth != 0) {
    // In a signal handler the call around it may be one that is about to wait: this one waits too.
    // While a thread is inside, no absence begins for longer than a few looks.
    while (away_.load()) wait();
    slot->in_driver.store(depth + 1, std::memory_order_relaxed);
  } else {
    enter_outermost(slot);
  }
  return slot;
}

void Absence::enter_outermost(ThreadSlot* slot) noexcept {
  while (true) {
    // Sequentially consistent, as in begin(): one of the two sides sees the other's store.
    slot->in_driver.store(1);
    if (!away_.load()) return;
    slot->in_driver.store(0, std::memory_order_release);
    wait();
  }
}

void Absence::leave(ThreadSlot* slot) noexcept {
  const std::uint32_t depth = slot->in_driver.load(std::memory_order_relaxed);
  if (depth == 1) slot->last_in_driver_ns.store(coarse_ns(), std::memory_order_relaxed);
  slot->in_driver.store(depth - 1, std::memory_order_release);
}

void Absence::wait() noexcept {
  const interpose::NoCancel whole;
  const std::uint32_t turn = turn_.load(std::memory_order_acquire);
  waiters_.fetch_add(1, std::memory_order_acq_rel);
  if (const auto about_to_wait = about_to_wait_.load(std::memory_order_relaxed)) about_to_wait();
  // end() clears the word before it counts the turn up, so a sleeper can't miss it.
  if (is_on()) futex_wait(turn_, turn);
  waiters_.fetch_sub(1, std::memory_order_acq_rel);
}

const char* Absence::begin(std::uint64_t quiet_ns) noexcept {
  if (!enabled_.load(std::memory_order_relaxed)) {
    return "its environment has no PLEXRL_EVICT=checkpoint: its calls are not counted";
  }
  const std::uint64_t now = coarse_ns();
  if (now > quiet_ns && was_any_inside_since(now - quiet_ns)) {
    return "a thread still calls the driver now and then";
  }
  away_.store(true);
  for (int look = 0; look < kLooks; ++look) {
    if (!is_any_inside()) return nullptr;
    ::nanosleep(&kBetweenLooks, nullptr);
  }
  end();
  return "a thread is inside the driver";
}

void Absence::end() noexcept {
  away_.store(false, std::memory_order_release);
  turn_.fetch_add(1, std::memory_order_acq_rel);
  futex_wake_all(turn_);
}

std::uint32_t Absence::step_out() noexcept {
  ThreadSlot* const slot = this_slot;
  if (slot == nullptr) return 0;
  const std::uint32_t depth = slot->in_driver.load(std::memory_order_relaxed);
  if (depth != 0) slot->in_driver.store(0, std::memory_order_release);
  return depth;
}

void Absence::step_in(std::uint32_t depth) noexcept {
  if (depth == 0) return;
  enter_outermost(this_slot);
  this_slot->in_driver.store(depth, std::memory_order_relaxed);
}

}  // namespace plexrl::shim
