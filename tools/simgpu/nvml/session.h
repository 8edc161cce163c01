#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/simgpu/driver/machine.h"
#include "tools/simgpu/nvml/nvml_api.h"

namespace plexrl::simgpu::nvml {

/// What nvmlInit makes in this process: a look at the machine that PLEXRL_SIMGPU names. NVML takes
/// no device memory and joins nothing, so a monitor neither makes a machine nor keeps one alive;
/// while no process uses it, the figures are those of the spec, with all memory free.
///
/// Threads: every function may be called from any thread.
class Session {
 public:
  /// Counts uses; the first one reads PLEXRL_SIMGPU. Errors, with a line on stderr:
  /// INVALID_ARGUMENT for a bad spec, UNKNOWN when the machine is in use with other figures.
  nvmlReturn_t initialise();
  nvmlReturn_t shut_down();  ///< UNINITIALIZED when there was no use left
  bool is_initialised() const;

  Spec spec() const;
  std::uint64_t free_bytes(int device);
  std::vector<Machine::Usage> usage(int device);
  std::array<std::uint8_t, 16> uuid(int device);
  /// Percent of the time since the last sample of at least 100 ms in which the device had work.
  unsigned busy_percent(int device);

 private:
  struct Sample {
    std::uint64_t at_ns = 0, busy_ns = 0;
    unsigned percent = 0;
  };
  /// The machine, if a process has it now. mutex_ is held.
  Machine* machine();
  void take_sample(int device);

  mutable std::mutex mutex_;
  int uses_ = 0;
  Spec spec_;
  std::unique_ptr<Machine> machine_;
  Sample samples_[kMaxDevices];
};

Session& session();

/// The device of a handle, or nothing for one that NVML did not give out.
std::optional<int> device_of(nvmlDevice_t handle);
nvmlDevice_t handle_of(int device);

}  // namespace plexrl::simgpu::nvml
