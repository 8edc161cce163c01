#pragma once

#include <array>
#include <cstdint>

#include "clustermgr/placement/types.h"

namespace plexrl::clustermgr::placement {

/// A task waits for at most so many others.
inline constexpr std::size_t kMaxAfter = 10;

/// A piece of a job's work. It starts when the tasks that it comes after have ended, each `delay`
/// ago or longer, and its gang (if any) has nothing older to do.
struct Task {
  struct After {
    int back = 0;  ///< the task that came `back` earlier in the order of the source; 0: unused
    Duration delay{0};
  };
  int gang = -1;  ///< index into the job's gangs; -1: time without a GPU
  Duration work{0};
  std::array<After, kMaxAfter> after{};
  bool ends_step = false;
};
/// No `back` is larger.
inline constexpr int kMaxBack = 64;

/// A job's work, task by task, in an order in which dependencies point back. Endless sources never
/// return false.
class TaskSource {
 public:
  virtual ~TaskSource() = default;
  virtual bool next(Task& task) = 0;
};

}  // namespace plexrl::clustermgr::placement
