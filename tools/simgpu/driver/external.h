#pragma once

#include <cstdint>

namespace plexrl::simgpu {

/// Unmaps the buffer of another API's memory that begins at `address`. False: there is none.
bool free_external(std::uint64_t address);

}  // namespace plexrl::simgpu
