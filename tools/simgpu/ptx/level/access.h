#pragma once

#include "tools/simgpu/ptx/act.h"
#include "tools/simgpu/ptx/level/lanes.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {

/// Host addresses of one memory access of a warp. Strided: lane i is at base + i·stride; else at
/// base + offset[i]. Only lanes in the mask are valid.
struct Access {
  std::byte* base;
  std::int64_t stride;
  bool is_strided;
  std::uint64_t offset[kLanes];

  PLEXRL_INLINE std::byte* at(int lane) const {
    return base + (is_strided ? stride * lane : static_cast<std::int64_t>(offset[lane]));
  }
};

/// Translates the addresses of `op` (register `a` plus `imm`, place and address width in `mode`)
/// for accesses of `bytes` bytes, which is also their alignment. False after raising a fault.
bool resolve(Warp& warp, const Op* op, std::uint32_t mask, std::size_t bytes, Access& out);

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
