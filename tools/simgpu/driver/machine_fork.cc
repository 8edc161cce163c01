// What becomes of a machine in a child of fork: the child has none of it, and must not keep its
// parent's share of it alive.

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {
namespace {

// An array of atomics, not a container with a lock: a child must find it usable at whatever
// instruction its parent's other threads were.
std::array<std::atomic<Machine*>, 64> living;

}  // namespace

bool Machine::watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      for (std::atomic<Machine*>& one : living) {
        if (Machine* const machine = one.load(); machine != nullptr) machine->become_child();
      }
    });
  });
  for (std::atomic<Machine*>& one : living) {
    Machine* none = nullptr;
    if (one.compare_exchange_strong(none, this)) return true;
  }
  return false;
}

void Machine::forget_forks() {
  for (std::atomic<Machine*>& one : living) {
    Machine* self = this;
    one.compare_exchange_strong(self, nullptr);
  }
}

void Machine::become_child() {
  lock_.become_child();
  alive_.become_child();
  slot_ = -1;
  for (int& fd : pool_fds_) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  pools_.clear();  // not inherited (MADV_DONTFORK)
}

}  // namespace plexrl::simgpu
