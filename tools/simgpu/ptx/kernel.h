#pragma once

#include <cstddef>

#include "tools/simgpu/ptx/executor.h"
#include "tools/simgpu/ptx/program.h"
#include "tools/simgpu/ptx/warp.h"

namespace plexrl::simgpu::ptx {

/// An entry of a loaded module; owned by it.
class Kernel {
 public:
  KernelInfo info;
  std::size_t dynamic_base = 0;  ///< where dynamic shared memory begins
  const Code* code = nullptr;
  const Program* program = nullptr;
  RunFn run = nullptr;
};

}  // namespace plexrl::simgpu::ptx
