#include "tools/simgpu/driver/call_scope.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

std::mutex hold_mutex;
auto& hold_changed = *new std::condition_variable;
std::atomic<bool> held{false};

struct ThreadCalls;
std::mutex threads_mutex;
auto& threads = *new std::set<ThreadCalls*>;
thread_local ThreadCalls* of_this_thread = nullptr;  ///< to be asked for without making one

/// How deep one thread is inside the driver; nobody else writes it.
struct ThreadCalls {
  std::atomic<unsigned> depth{0};
  ThreadCalls() {
    const std::lock_guard lock(threads_mutex);
    threads.insert(this);
    of_this_thread = this;
  }
  ~ThreadCalls() {
    const std::lock_guard lock(threads_mutex);
    threads.erase(this);
    of_this_thread = nullptr;
  }
};

thread_local ThreadCalls calls;

/// A child of fork has its calling thread only, whose end takes the mutex; another thread of the
/// parent may come or go just then. Since the library was loaded, so that it is locked after all
/// that fork waits for in it: nothing is waited for while it is held.
[[maybe_unused]] const int at_fork = pthread_atfork(
    [] { threads_mutex.lock(); }, [] { threads_mutex.unlock(); },
    [] {
      std::erase_if(threads, [](const ThreadCalls* one) { return one != of_this_thread; });
      threads_mutex.unlock();
    });

/// A child of fork finds no driver, and one that leaves answers no more: neither is held.
bool must_wait() { return held.load() && is_ready(); }

}  // namespace

CallScope::CallScope() {
  const unsigned depth = calls.depth.load(std::memory_order_relaxed);
  calls.depth.store(depth +
                    1);  // sequentially consistent, as the load of `held`: one sees the other
  if (depth != 0) return;
  while (must_wait()) {
    calls.depth.store(0);
    {
      std::unique_lock lock(hold_mutex);
      hold_changed.wait(lock, [] { return !must_wait(); });
    }
    calls.depth.store(1);
  }
}

CallScope::~CallScope() {
  calls.depth.store(calls.depth.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}

void hold_calls() { held.store(true); }

void release_calls() {
  const std::lock_guard lock(hold_mutex);
  held.store(false);
  hold_changed.notify_all();
}

bool is_any_call_inside() {
  const std::lock_guard lock(threads_mutex);
  for (const ThreadCalls* thread : threads) {
    if (thread->depth.load() != 0) return true;
  }
  return false;
}

}  // namespace plexrl::simgpu
