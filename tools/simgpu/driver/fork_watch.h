#pragma once

#include <functional>
#include <mutex>

namespace plexrl::simgpu {

/// Has something done in a child of fork, before fork returns there: for what a child has no part
/// of but would have a copy of. Files that it opens anew, never memory: other threads of its parent
/// may have had any lock.
///
/// The last member of a class, so that it goes first. Threads: any; fork waits while a watch begins
/// or ends.
class ForkWatch {
 public:
  explicit ForkWatch(std::function<void()> in_child);
  ~ForkWatch() { end(); }
  ForkWatch(const ForkWatch&) = delete;
  ForkWatch& operator=(const ForkWatch&) = delete;
  void end();

  /// While it is held no fork takes place: for a change that a child must not see half of. Not to
  /// be held while a watch begins or ends.
  static std::mutex& forks();

 private:
  const std::function<void()> in_child_;
  ForkWatch* next_ = nullptr;
  ForkWatch** link_ = nullptr;  ///< what points to this one; null: ended
};

}  // namespace plexrl::simgpu
