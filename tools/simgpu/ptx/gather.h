#pragma once

#include <cstdint>

#include "tools/simgpu/ptx/warp.h"

namespace plexrl::simgpu::ptx {

/// Before an operation that lanes execute together (shfl.sync, vote.sync, …): true when every
/// living lane that one of the active lanes names in its member mask is active. Otherwise the
/// active lanes are parked at `op` until the others arrive at it, and the caller returns `op`
/// without executing it. Lanes that can't come (they wait at a block barrier) are not waited for;
/// PTX leaves that case undefined.
bool gather(Warp& warp, const Op* op, std::uint32_t mask, const std::uint32_t* member_masks);

}  // namespace plexrl::simgpu::ptx
