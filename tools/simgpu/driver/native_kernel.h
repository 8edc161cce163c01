#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/simgpu/driver/cuda_api.h"
#include "tools/simgpu/ptx/executor.h"

namespace plexrl::simgpu {

struct RunScope;

/// By what a native kernel's time is modelled: device memory is all that it waits for.
struct NativeTime {
  std::uint64_t bytes = 0;      ///< that it moves in device memory
  std::uint64_t waited_ns = 0;  ///< device time until which it waited for other devices
};

/// A kernel that this host runs as a function instead of by its PTX: because a program waits for so
/// much of it that interpreting would be the measurement (the pager's hash), or because it is more
/// than PTX can say (process_kernel.h). It is known by its whole PTX text: who changes that gets
/// what the text says.
struct NativeKernel {
  /// Does what the kernel does with these parameters.
  CUresult (*run)(const RunScope& scope, const ptx::LaunchConfig& config, NativeTime* time);
};

/// The native form of the kernels of a module that was loaded from these texts; null: none.
const NativeKernel* native_kernel(const std::vector<std::string>& sources);

}  // namespace plexrl::simgpu
