#include "shim/room.h"

#include <cerrno>
#include <ctime>
#include <functional>

#include "interpose/driver.h"
#include "interpose/no_cancel.h"
#include "shim/boottime.h"
#include "shim/contexts.h"
#include "shim/gate.h"
#include "shim/guarded.h"
#include "shim/process.h"

namespace plexrl::shim {
namespace {

constexpr std::uint64_t kPatienceNs = 10'000'000'000;
constexpr timespec kPause{0, 10'000'000};

/// Tries under the lease until `try_once` succeeds or patience ends.
void insist(Process& process, const std::function<bool()>& try_once) {
  const int saved_errno = errno;
  std::uint64_t deadline = 0;
  while (true) {
    bool done = false;
    {
      const InsideGate inside;
      // The wait for the lease has its own bound; patience counts from the first try with it.
      if (deadline == 0) deadline = boottime_ns() + kPatienceNs;
      done = try_once();
    }
    if (done || boottime_ns() >= deadline) break;
    process.keeper.say_lacking();
    process.agent.notify();
    ::nanosleep(&kPause, nullptr);
  }
  errno = saved_errno;
}

}  // namespace

CUresult with_room(CUdevice device, CallRef call) {
  CUresult result = call();
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  Process* const process = Process::start();
  if (process == nullptr || process->devices.attach(device) != Devices::Attach::kAttached) {
    return result;
  }
  insist(*process, [&] {
    result = call();
    return result != CUDA_ERROR_OUT_OF_MEMORY;
  });
  return result;
}

CUresult again_with_room(CallRef call) noexcept {
  const interpose::NoCancel whole;
  return guarded([&] {
    const auto current = current_context();
    return current ? with_room(current->device, call) : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

void wait_for_room(CUdevice device, std::size_t bytes) {
  Process* const process = Process::started();
  const auto is_free = [&] {
    std::size_t free = 0;
    std::size_t total = 0;
    return driver.cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS || free >= bytes;
  };
  if (process == nullptr || !process->devices.find(device) || is_free()) return;
  insist(*process, is_free);
}

}  // namespace plexrl::shim
