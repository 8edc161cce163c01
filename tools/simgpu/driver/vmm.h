#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <cstdint>
#include <optional>

namespace plexrl::simgpu {

/// What cuMemMap put at an address.
struct VmmMapping {
  std::uint64_t base, bytes;
  int device;                ///< where the memory is
  std::uint32_t allocation;  ///< the machine's id
  unsigned handle_types;     ///< CUmemAllocationHandleType bits that it may be exported as
};

/// The mapping that holds `address`, if there is one.
std::optional<VmmMapping> find_mapping(std::uint64_t address);

}  // namespace plexrl::simgpu
