#include "shim/slab_worker.h"

#include <sys/prctl.h>

#include <csignal>

namespace plexrl::shim {
namespace {

void* worker_main(void* argument) {
  prctl(PR_SET_NAME, "plexrl-slabs");
  static_cast<SlabWorker*>(argument)->run();
  return nullptr;
}

}  // namespace

bool SlabWorker::start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int result = pthread_create(&thread_, nullptr, &worker_main, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result == 0;
}

void SlabWorker::want(std::size_t bytes) {
  if (bytes == wanted_last_) return;
  wanted_last_ = bytes;
  const std::lock_guard lock(mutex_);
  wanted_ = bytes;
  is_new_ = true;
  // Without a thread memory is had when it is needed.
  if (!is_running_) is_running_ = start();
  changed_.notify_one();
}

void SlabWorker::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!is_running_) return;
    stopping_ = true;
    changed_.notify_one();
  }
  pthread_join(thread_, nullptr);
  is_running_ = false;
  stopping_ = false;
}

void SlabWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || is_new_; });
    if (stopping_) return;
    is_new_ = false;
    bool goes_on = true;
    while (goes_on && !stopping_) {
      const std::size_t bytes = wanted_;
      lock.unlock();
      goes_on = store_.prepare(bytes, contexts_);
      lock.lock();
    }
  }
}

}  // namespace plexrl::shim
