#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/simgpu/driver/cuda_api.h"

namespace plexrl::simgpu {

/// What the simulated driver gives to the simulated NIC (tools/simgpu/verbs), as NVIDIA's gives
/// pages to NICs inside the kernel: a table of cuGetExportTable. Any thread; after cuInit.
struct NicTable {
  std::size_t bytes;  ///< of this table
  /// Whether the address is the devices', mapped or not.
  bool (*is_device)(std::uint64_t address);
  /// Where the memory that is mapped at a device's address just now lies in this process, and how
  /// many bytes of it follow there; it stays that memory's place whatever is mapped there later.
  /// Null: nothing is mapped.
  std::byte* (*physical)(std::uint64_t address, std::uint64_t* contiguous);
};

inline constexpr CUuuid kNicTableId = {
    {'P', 'l', 'e', 'x', 'R', 'L', ' ', 's', 'i', 'm', 'g', 'p', 'u', 'N', 'I', 'C'}};

const NicTable& nic_table();

}  // namespace plexrl::simgpu
