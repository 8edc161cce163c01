#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/simgpu/driver/cuda_api.h"
#include "tools/simgpu/ptx/executor.h"

namespace plexrl::simgpu {

/// A kernel that this host runs as a function instead of by its PTX, because a program waits for so
/// much of it that interpreting would be the measurement. It is known by its whole PTX text: who
/// changes that gets what the text says.
struct NativeKernel {
  /// Does what the kernel does with these parameters. `*bytes` is what it moves in device memory,
  /// by which its time is modelled.
  CUresult (*run)(int device, const ptx::LaunchConfig& config, std::uint64_t* bytes);
};

/// The native form of the kernels of a module that was loaded from these texts; null: none.
const NativeKernel* native_kernel(const std::vector<std::string>& sources);

}  // namespace plexrl::simgpu
