#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <array>
#include <cstdint>
#include <optional>

#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {

/// What cuMemMap put at an address.
struct VmmMapping {
  std::uint64_t base, bytes;
  int device;                ///< where the memory is
  std::uint32_t allocation;  ///< the machine's id
  unsigned handle_types;     ///< CUmemAllocationHandleType bits that it may be exported as
  std::array<int, kMaxDevices> access;  ///< CUmemAccess_flags by device
};

/// The mapping that holds `address`, if there is one.
std::optional<VmmMapping> find_mapping(std::uint64_t address);

/// What a handle of this process stands for.
struct VmmHandle {
  std::uint32_t allocation;  ///< the machine's id
  unsigned handle_types;
};
std::optional<VmmHandle> find_handle(CUmemGenericAllocationHandle handle);
/// Makes a handle that owns one hold of `allocation`.
CUmemGenericAllocationHandle add_handle(std::uint32_t allocation,
                                        const CUmemAllocationProp& properties);
/// Waits until all of a multicast object's devices have been added. False: exit has begun.
bool wait_for_team(std::uint32_t multicast);
/// AddressSpace::find_replicas.
std::size_t find_replicas(int device, std::uint64_t address, std::size_t bytes, std::byte** out);

}  // namespace plexrl::simgpu
