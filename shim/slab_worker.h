#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "shim/contexts.h"
#include "shim/host_store.h"

namespace plexrl::shim {

/// Gets host memory ready before it is needed, so that no switch waits for it: pinning memory takes
/// as long as copying it.
///
/// A thread of its own, `plexrl-slabs`, made when there is first something to do; it blocks all
/// signals, and asks the manager for one slab at a time. `want` is for the agent, `stop` for tests.
class SlabWorker {
 public:
  SlabWorker(HostStore& store, const Contexts& contexts) noexcept
      : store_(store), contexts_(contexts) {}
  SlabWorker(const SlabWorker&) = delete;
  SlabWorker& operator=(const SlabWorker&) = delete;

  /// So many bytes of slabs should be there. What can't be had now is asked for again when `bytes`
  /// changes.
  void want(std::size_t bytes);

  /// Ends the thread and waits for it.
  void stop() noexcept;

  /// The body of the thread.
  void run();

 private:
  bool start();

  HostStore& store_;
  const Contexts& contexts_;
  std::size_t wanted_last_ = 0;  ///< by the agent
  std::mutex mutex_;             ///< of what follows
  std::condition_variable changed_;
  std::size_t wanted_ = 0;
  bool is_new_ = false;  ///< `wanted_` has not been looked at
  bool is_running_ = false;
  bool stopping_ = false;
  pthread_t thread_{};
};

}  // namespace plexrl::shim
