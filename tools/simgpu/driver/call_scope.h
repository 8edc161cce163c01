#pragma once

#include <atomic>

namespace plexrl::simgpu {

/// A call of this process while it is inside the driver. When the process is locked
/// (cuCheckpointProcessLock) a thread stops at its next call until it is unlocked. Calls inside
/// calls pass.
///
/// Threads: each for itself. Costs two stores of the thread's own.
class CallScope {
 public:
  CallScope();
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
};

/// From now on calls stop; those inside go on (`is_any_call_inside`).
void hold_calls();
/// And go on.
void release_calls();
bool is_any_call_inside();

}  // namespace plexrl::simgpu
