#include "tools/simgpu/driver/fork_watch.h"

#include <pthread.h>

#include <utility>

namespace plexrl::simgpu {
namespace {

ForkWatch* first = nullptr;

}  // namespace

std::mutex& ForkWatch::forks() {
  static std::mutex& mutex = *new std::mutex;  // never destroyed: a child may be made at exit
  return mutex;
}

ForkWatch::ForkWatch(std::function<void()> in_child) : in_child_(std::move(in_child)) {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork([] { forks().lock(); }, [] { forks().unlock(); },
                   [] {
                     for (const ForkWatch* watch = first; watch != nullptr; watch = watch->next_)
                       watch->in_child_();
                     forks().unlock();
                   });
  });
  const std::lock_guard no_fork(forks());
  next_ = first;
  if (next_ != nullptr) next_->link_ = &next_;
  link_ = &first;
  first = this;
}

void ForkWatch::end() {
  const std::lock_guard no_fork(forks());
  if (link_ == nullptr) return;
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
  link_ = nullptr;
}

}  // namespace plexrl::simgpu
