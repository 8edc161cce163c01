#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/simgpu/driver/address_space.h"
#include "tools/simgpu/driver/call_scope.h"
#include "tools/simgpu/driver/context.h"
#include "tools/simgpu/driver/device_log.h"
#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {

/// Tools tell a simulated device by this name.
inline constexpr char kDeviceName[] = "PlexRL Simulated GPU";

/// What this process has of the simulated machine. Made by cuInit, never destroyed (work may still
/// run in exit handlers).
struct Driver {
  std::unique_ptr<Machine> machine;
  Addresses addresses;
  DeviceLog log;
  std::vector<int> visible;  ///< the machine's device of each ordinal (CUDA_VISIBLE_DEVICES)
  pid_t pid = 0;
  std::mutex mutex;  ///< contexts
  std::vector<Context*> contexts;
  std::vector<Context*> primaries;  ///< by ordinal; nullptr until first retained
  std::atomic<std::uint64_t> kernels{0};
  std::mutex one_kernel;             ///< held by a running kernel with order=fixed
  std::atomic<int> running{0};       ///< pieces of work that are under way (WorkScope)
  std::atomic<bool> leaving{false};  ///< exit has begun: operations stop, and none begins
};

/// nullptr before cuInit, in a forked child, and after a failed cuInit. Stays after exit has begun,
/// for the threads of streams.
Driver* driver();
/// Whether calls may use it: there is a driver, and exit has not begun.
inline bool is_ready() {
  const Driver* const d = driver();
  return d != nullptr && !d->leaving.load(std::memory_order_relaxed);
}

/// A piece of work of a driver's thread while it is under way: exit waits for it, so that the
/// memory it moves is this process's until it ends.
class WorkScope {
 public:
  WorkScope() { driver_->running.fetch_add(1); }
  ~WorkScope() { driver_->running.fetch_sub(1); }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

  /// False: exit has begun. Sequentially consistent, as the count: one sees the other.
  bool may_begin() const { return !driver_->leaving.load(); }

 private:
  Driver* const driver_ = driver();
};

/// Sleeps for an operation, until the device time `when` or the beginning of exit.
void sleep_for_device(std::uint64_t when);
/// What a call answers when driver() is nullptr.
CUresult not_ready();

/// The counter and the check of fail=CALL@N:CODE: CUDA_SUCCESS, or the error that this call must
/// answer.
CUresult injected_failure(const char* call);

/// The beginning of every entry point: `SIMGPU_ENTER(cuMemAlloc_v2);` waits while the process is
/// locked (call_scope.h), and returns when the driver is not ready or a failure is injected for
/// this call.
#define SIMGPU_ENTER(call)                            \
  const ::plexrl::simgpu::CallScope simgpu_this_call; \
  SIMGPU_ENTER_LOCKED(call)

/// The same for calls that a locked process may make.
#define SIMGPU_ENTER_LOCKED(call)                                            \
  do {                                                                       \
    if (!::plexrl::simgpu::is_ready()) return ::plexrl::simgpu::not_ready(); \
    if (const CUresult injected = ::plexrl::simgpu::injected_failure(#call); \
        injected != CUDA_SUCCESS) {                                          \
      return injected;                                                       \
    }                                                                        \
  } while (false)

/// As SIMGPU_ENTER, and declares `Context* context`, the calling thread's usable context.
#define SIMGPU_ENTER_CONTEXT(call)                                        \
  SIMGPU_ENTER(call);                                                     \
  ::plexrl::simgpu::Context* context = nullptr;                           \
  if (const CUresult usable = ::plexrl::simgpu::usable_context(&context); \
      usable != CUDA_SUCCESS) {                                           \
    return usable;                                                        \
  }

#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default")))

}  // namespace plexrl::simgpu
