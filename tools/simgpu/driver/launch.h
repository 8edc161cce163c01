#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/simgpu/driver/module.h"
#include "tools/simgpu/driver/operation.h"

/// Kernel launches: arguments, checks, and the operation that a stream or a graph runs.
namespace plexrl::simgpu {

/// The shape of a launch, as cuLaunchKernel takes it.
struct LaunchShape {
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t dynamic_shared = 0;
  bool is_cooperative = false;
};

/// Copies a launch's arguments into the layout that the kernel has for them, from an array of
/// pointers or from the `extra` list (CU_LAUNCH_PARAM_*), of which only one may be given.
CUresult collect_arguments(const Function& function, void** pointers, void** extra,
                           std::vector<std::byte>* arguments);

/// Checks the shape against function and device. INVALID_VALUE for what no launch could have,
/// COOPERATIVE_LAUNCH_TOO_LARGE for a cooperative grid that isn't resident at once.
CUresult check_shape(const Function& function, const LaunchShape& shape);

/// Both of the above, and the operation.
CUresult make_launch(const Function& function, const LaunchShape& shape, void** pointers,
                     void** extra, std::unique_ptr<Operation>* operation);

/// Launches a function, or a kernel of a library, into a stream or its capture.
CUresult launch(CUfunction handle, const LaunchShape& shape, CUstream stream, bool per_thread,
                void** pointers, void** extra);

}  // namespace plexrl::simgpu
