#include "shim/thread_slot.h"

#include <pthread.h>

#include <new>

namespace plexrl::shim {

constinit thread_local ThreadSlot* this_slot __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constinit std::atomic<ThreadSlot*> newest_slot{nullptr};

/// A thread may end inside a call (pthread_cancel, pthread_exit in a callback): its depth ends too.
void leave_slot(void* value) noexcept {
  auto* slot = static_cast<ThreadSlot*>(value);
  this_slot = nullptr;
  slot->attention = 0;
  slot->depth.store(0, std::memory_order_release);
  slot->in_driver.store(0, std::memory_order_release);
  slot->in_use.store(false, std::memory_order_release);  // pairs with the exchange in claim_slot
}

pthread_key_t slot_key() noexcept {
  static const pthread_key_t key = [] {
    pthread_key_t created{};
    pthread_key_create(&created, &leave_slot);
    return created;
  }();
  return key;
}

}  // namespace

ThreadSlot* all_slots() noexcept { return newest_slot.load(std::memory_order_acquire); }

ThreadSlot* claim_slot() noexcept {
  ThreadSlot* slot = all_slots();
  while (slot != nullptr && slot->in_use.exchange(true, std::memory_order_acq_rel)) {
    slot = slot->next;
  }
  if (slot == nullptr) {
    slot = new (std::nothrow) ThreadSlot;
    if (slot == nullptr) return nullptr;
    slot->next = newest_slot.load(std::memory_order_relaxed);
    // Release: pairs with the acquire in all_slots().
    while (!newest_slot.compare_exchange_weak(slot->next, slot, std::memory_order_release,
                                              std::memory_order_relaxed)) {
    }
  }
  pthread_setspecific(slot_key(), slot);
  this_slot = slot;
  return slot;
}

void reset_slots_after_fork() noexcept {
  for (ThreadSlot* slot = all_slots(); slot != nullptr; slot = slot->next) {
    slot->depth.store(0, std::memory_order_relaxed);
    slot->in_driver.store(0, std::memory_order_relaxed);
    slot->in_use.store(slot == this_slot, std::memory_order_relaxed);
  }
}

}  // namespace plexrl::shim
