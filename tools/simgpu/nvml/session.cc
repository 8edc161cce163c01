#include "tools/simgpu/nvml/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tools/simgpu/driver/clock.h"

/// A handle is the address of one of these.
struct nvmlDevice_st {
  int unused;
};

namespace plexrl::simgpu::nvml {
namespace {

constexpr std::uint64_t kSampleNs = 100'000'000;  // the real library's period is 1/6 s to 1 s

nvmlDevice_st handles[kMaxDevices];

}  // namespace

Session& session() {
  static auto* the_session = new Session;  // never destroyed: calls may come from exit handlers
  return *the_session;
}

nvmlReturn_t Session::initialise() {
  const std::lock_guard lock(mutex_);
  if (uses_ > 0) {
    ++uses_;
    return NVML_SUCCESS;
  }
  const char* text = std::getenv("PLEXRL_SIMGPU");
  std::string error;
  if (!parse_spec(text == nullptr ? "" : text, &spec_, &error)) {
    std::fprintf(stderr, "simgpu[%d]: %s\n", static_cast<int>(getpid()), error.c_str());
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  machine_ = Machine::observe(spec_.name, &error);
  if (machine_ != nullptr && machine_->spec().device_part() != spec_.device_part()) {
    error = "PLEXRL_SIMGPU: '" + spec_.name + "' is in use with other figures (" +
            machine_->spec().device_part() + "): use another name= or the same figures";
    machine_.reset();
  }
  if (!error.empty()) {
    std::fprintf(stderr, "simgpu[%d]: %s\n", static_cast<int>(getpid()), error.c_str());
    return NVML_ERROR_UNKNOWN;
  }
  for (Sample& sample : samples_) sample = {};
  for (int i = 0; i < spec_.gpus; ++i) take_sample(i);
  uses_ = 1;
  return NVML_SUCCESS;
}

nvmlReturn_t Session::shut_down() {
  const std::lock_guard lock(mutex_);
  if (uses_ == 0) return NVML_ERROR_UNINITIALIZED;
  if (--uses_ == 0) machine_.reset();
  return NVML_SUCCESS;
}

bool Session::is_initialised() const {
  const std::lock_guard lock(mutex_);
  return uses_ > 0;
}

Spec Session::spec() const {
  const std::lock_guard lock(mutex_);
  return spec_;
}

Machine* Session::machine() {
  if (machine_ != nullptr && machine_->is_gone()) machine_.reset();
  if (machine_ == nullptr) {
    std::string ignored;  // a machine of other figures that came since: not ours
    machine_ = Machine::observe(spec_.name, &ignored);
    if (machine_ != nullptr && machine_->spec().device_part() != spec_.device_part())
      machine_.reset();
  }
  return machine_.get();
}

std::uint64_t Session::free_bytes(int device) {
  const std::lock_guard lock(mutex_);
  Machine* const seen = machine();
  return seen == nullptr ? spec_.memory_bytes : seen->free_bytes(device);
}

std::vector<Machine::Usage> Session::usage(int device) {
  const std::lock_guard lock(mutex_);
  Machine* const seen = machine();
  return seen == nullptr ? std::vector<Machine::Usage>{} : seen->usage(device);
}

std::array<std::uint8_t, 16> Session::uuid(int device) {
  const std::lock_guard lock(mutex_);
  return device_uuid(spec_.name, device);
}

void Session::take_sample(int device) {
  Machine* const seen = machine();
  const std::uint64_t now = now_ns();
  const std::uint64_t busy = seen == nullptr ? 0 : seen->counters(device).busy_ns.load();
  Sample& last = samples_[device];
  if (last.at_ns != 0 && now - last.at_ns < kSampleNs) return;
  if (last.at_ns != 0) {
    // Work is counted when it ends, and streams add up, so a period can seem more than full.
    const std::uint64_t worked = busy < last.busy_ns ? 0 : busy - last.busy_ns;
    last.percent =
        static_cast<unsigned>(std::min<std::uint64_t>(100, worked * 100 / (now - last.at_ns)));
  }
  last.at_ns = now;
  last.busy_ns = busy;
}

unsigned Session::busy_percent(int device) {
  const std::lock_guard lock(mutex_);
  take_sample(device);
  return samples_[device].percent;
}

std::optional<int> device_of(nvmlDevice_t handle) {
  if (handle < handles || handle >= handles + session().spec().gpus) return std::nullopt;
  return static_cast<int>(handle - handles);
}

nvmlDevice_t handle_of(int device) { return &handles[device]; }

}  // namespace plexrl::simgpu::nvml
