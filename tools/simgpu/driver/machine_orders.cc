// Orders from process to process, through words in the machine's tables.

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <iterator>

#include "tools/simgpu/driver/clock.h"
#include "tools/simgpu/driver/machine.h"
#include "tools/simgpu/driver/machine_state.h"

namespace plexrl::simgpu {
namespace {

constexpr long kPatienceNs = 20'000'000;  ///< then a waiter looks whether the other lives

void wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec patience = {0, kPatienceNs};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &patience, nullptr, 0);
}

void wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

/// −1: none. The lock is held.
int Machine::living_slot(pid_t pid) const {
  for (int slot = 0; slot < kMaxProcesses; ++slot) {
    const ProcessSlot& process = state_->processes[slot];
    if (process.pid != pid || process.found_dead_ns != 0) continue;
    const bool lives = slot == slot_ || alive_.is_taken(slot);
    if (lives && state_->orders[slot].thread != 0) return slot;
  }
  return -1;
}

/// The lock is held.
bool Machine::is_slot_of(int slot, std::uint32_t incarnation) const {
  const ProcessSlot& process = state_->processes[slot];
  return process.incarnation == incarnation && living_slot(process.pid) == slot;
}

int Machine::order(pid_t pid, ProcessOrder what, std::uint32_t timeout_ms) {
  const std::uint64_t deadline = now_ns() + std::uint64_t{timeout_ms} * 1'000'000;
  const auto is_late = [&] { return timeout_ms != 0 && now_ns() >= deadline; };
  std::uint32_t number = 0;
  std::uint32_t incarnation = 0;
  OrderWords* words = nullptr;
  int slot = -1;
  while (number == 0) {
    std::uint32_t answered = 0;
    {
      const Lock lock(lock_);
      slot = living_slot(pid);
      if (slot < 0) return kNoProcess;
      words = &state_->orders[slot];
      answered = words->answered.load();
      if (words->asked.load() == answered) {
        incarnation = state_->processes[slot].incarnation;
        number = answered + 1;
        words->what = static_cast<std::uint32_t>(what);
        words->timeout_ms = timeout_ms;
        words->asked.store(number);
      }
    }
    // Another's, who may have died since: it is carried out all the same.
    if (number == 0) {
      if (is_late()) return kLate;
      wait_for_change(words->answered, answered);
    }
  }
  wake_all(words->asked);
  const auto is_earlier = [](std::uint32_t a, std::uint32_t b) {
    return static_cast<std::int32_t>(a - b) < 0;
  };
  for (std::uint32_t answered; is_earlier(answered = words->answered.load(), number);) {
    wait_for_change(words->answered, answered);
    const Lock lock(lock_);
    if (!is_earlier(words->answered.load(), number)) break;  // it may have gone since
    if (!is_slot_of(slot, incarnation)) return kNoProcess;
    if (!is_late() || words->begun == number) continue;  // which keeps the time itself
    words->what = static_cast<std::uint32_t>(ProcessOrder::kNothing);
    return kLate;
  }
  const Lock lock(lock_);
  // Who takes a slot begins with all orders answered (reset_orders).
  if (state_->processes[slot].incarnation != incarnation) return kNoProcess;
  return words->results[number % std::size(words->results)];
}

bool Machine::process_info(pid_t pid, ProcessInfo* info) {
  const Lock lock(lock_);
  const int slot = living_slot(pid);
  if (slot < 0) return false;
  *info = {static_cast<ProcessState>(state_->orders[slot].state), state_->orders[slot].thread};
  return true;
}

/// For a process that takes the slot. The lock is held.
void Machine::reset_orders(int slot) {
  OrderWords& words = state_->orders[slot];
  words.answered.store(words.asked.load());
  words.state = static_cast<std::uint32_t>(ProcessState::kRunning);
  words.thread = 0;
}

void Machine::begin_orders(pid_t thread) {
  const Lock lock(lock_);
  if (slot_ >= 0) state_->orders[slot_].thread = thread;
}

bool Machine::next_order(Order* order) {
  for (;;) {
    std::uint32_t seen = 0;
    const std::atomic<std::uint32_t>* asked = nullptr;
    {
      const Lock lock(lock_);
      if (slot_ < 0) return false;
      OrderWords& words = state_->orders[slot_];
      asked = &words.asked;
      seen = words.asked.load();
      if (seen != words.answered.load()) {
        words.begun = seen;
        *order = {seen, static_cast<ProcessOrder>(words.what), words.timeout_ms,
                  static_cast<ProcessState>(words.state)};
        return true;
      }
    }
    syscall(SYS_futex, asked, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
}

void Machine::answer_order(const Order& order, int result, ProcessState state) {
  const Lock lock(lock_);
  if (slot_ < 0) return;
  OrderWords& words = state_->orders[slot_];
  words.results[order.number % std::size(words.results)] = result;
  words.state = static_cast<std::uint32_t>(state);
  words.answered.store(order.number);
  wake_all(words.answered);
}

}  // namespace plexrl::simgpu
