#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace plexrl::simgpu::nccl {

/// Device memory as NCCL takes it: a handle of the current device's, mapped for it. It is taken by
/// the calls that the process sees, so who catches those catches these.
struct DeviceBlock {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
};

/// `bytes`, rounded up to what the driver recommends. On an error nothing is left, and *block as it
/// was.
CUresult allocate(std::size_t bytes, DeviceBlock* block);
CUresult release(const DeviceBlock& block);

}  // namespace plexrl::simgpu::nccl
