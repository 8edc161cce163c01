#include "tools/simgpu/driver/driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/simgpu/driver/checkpoint.h"
#include "tools/simgpu/driver/clock.h"
#include "tools/simgpu/driver/visible_devices.h"

namespace plexrl::simgpu {
namespace {

std::atomic<Driver*> the_driver{nullptr};
std::mutex init_mutex;
CUresult init_result = CUDA_ERROR_NOT_INITIALIZED;
bool init_tried = false;
std::atomic<bool> forked{false};

constexpr std::uint64_t kSliceNs = 10'000'000;        // operations look for exit so often
constexpr std::uint64_t kStopWithinNs = 500'000'000;  // beyond that one sits in a host function

/// At exit work in flight is cut off, as a device does, and this process's memory is given back at
/// once. Where work can't be stopped the memory stays, as after a kill: the next comer recovers it.
void leave_machine() {
  Driver* const d = driver();
  if (d == nullptr || d->pid != getpid()) return;
  d->leaving.store(true);  // pairs with WorkScope::may_begin
  release_calls();
  const std::uint64_t deadline = now_ns() + kStopWithinNs;
  while (d->running.load() != 0) {
    if (now_ns() > deadline) return;
    sleep_until_ns(now_ns() + kSliceNs / 10);
  }
  d->machine->leave();
}

CUresult initialise() {
  const char* text = getenv("PLEXRL_SIMGPU");
  Spec spec;
  std::string error;
  if (!parse_spec(text == nullptr ? "" : text, &spec, &error)) {
    std::fprintf(stderr, "simgpu[%d]: %s\n", static_cast<int>(getpid()), error.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto made = std::make_unique<Driver>();
  made->pid = getpid();
  made->machine = Machine::open(spec, &error);
  if (made->machine == nullptr) {
    std::fprintf(stderr, "simgpu[%d]: %s\n", static_cast<int>(getpid()), error.c_str());
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  if (!made->addresses.initialise(spec.gpus)) {
    std::fprintf(stderr, "simgpu[%d]: no address space for the devices' memory: raise ulimit -v\n",
                 static_cast<int>(getpid()));
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  if (!spec.log_path.empty() && !made->log.open(spec.log_path)) {
    std::fprintf(stderr, "simgpu[%d]: PLEXRL_SIMGPU: log='%s': %s\n", static_cast<int>(getpid()),
                 spec.log_path.c_str(), std::strerror(errno));
    return CUDA_ERROR_INVALID_VALUE;
  }
  made->visible = visible_devices(*made->machine, getenv("CUDA_VISIBLE_DEVICES"));
  if (made->visible.empty()) return CUDA_ERROR_NO_DEVICE;
  made->primaries.resize(made->visible.size());
  the_driver.store(made.release(), std::memory_order_release);
  start_checkpoint_thread();
  atexit(leave_machine);
  return CUDA_SUCCESS;
}

}  // namespace

Driver* driver() {
  Driver* const d = the_driver.load(std::memory_order_acquire);
  return d != nullptr && !forked.load(std::memory_order_relaxed) ? d : nullptr;
}

void sleep_for_device(std::uint64_t when) {
  for (std::uint64_t now = now_ns(); now < when && is_ready(); now = now_ns())
    sleep_until_ns(std::min(when, now + kSliceNs));
}

CUresult not_ready() {
  // A forked child can't use its parent's devices; neither can anybody after exit has begun.
  if (init_tried && init_result == CUDA_SUCCESS && !forked) return CUDA_ERROR_DEINITIALIZED;
  return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult injected_failure(const char* call) {
  const InjectedFailure& failure = driver()->machine->spec().failure;
  if (failure.nth == 0) return CUDA_SUCCESS;
  // `cuMemCreate` in the spec means every version of it.
  const std::string_view name = call;
  if (name.substr(0, failure.call.size()) != failure.call) return CUDA_SUCCESS;
  if (name.size() > failure.call.size() && name[failure.call.size()] != '_') return CUDA_SUCCESS;
  static std::atomic<std::uint64_t> calls{0};
  if (calls.fetch_add(1) + 1 != failure.nth) return CUDA_SUCCESS;
  driver()->log.write({.kind = "failure", .name = name, .start_ns = now_ns(), .end_ns = now_ns()});
  return static_cast<CUresult>(failure.code);
}

}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(init_mutex);
  if (forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (!init_tried) {
    init_tried = true;
    init_result = initialise();
    if (init_result == CUDA_SUCCESS) pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  }
  return init_result;
}
