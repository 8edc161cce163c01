#include "tools/simgpu/ptx/act.h"
#include "tools/simgpu/ptx/launch.h"
#include "tools/simgpu/ptx/level/lanes.h"

/// Values that don't come from registers: special registers, addresses that are known at launch,
/// address spaces.
namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

/// Writes f(lane) to register d, whose width in bytes is op->mode.
template <typename F>
PLEXRL_INLINE void write(Warp& warp, const Op* op, std::uint32_t mask, F f) {
  if (op->mode == 8) {
    map_lanes<std::uint64_t>(warp, op->d, mask,
                             [=](int i) { return static_cast<std::uint64_t>(f(i)); });
  } else if (op->mode == 4) {
    map_lanes<std::uint32_t>(warp, op->d, mask,
                             [=](int i) { return static_cast<std::uint32_t>(f(i)); });
  } else {
    map_lanes<std::uint16_t>(warp, op->d, mask,
                             [=](int i) { return static_cast<std::uint16_t>(f(i)); });
  }
}

std::uint64_t cycles(const Warp& warp) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(clock_ns(warp)) *
                                    warp.launch->config.clock_khz / 1'000'000);
}

std::uint32_t thread_index(const Warp& warp, int axis, int lane) {
  const std::uint32_t* const block = warp.launch->config.block;
  const std::uint32_t linear = warp.index * kLanes + static_cast<std::uint32_t>(lane);
  if (axis == 0) return linear % block[0];
  if (axis == 1) return linear / block[0] % block[1];
  return linear / (block[0] * block[1]);
}

std::uint32_t lane_mask(SpecialRegister which, int lane) {
  const std::uint32_t own = 1u << lane;
  switch (which) {
    case SpecialRegister::kLaneMaskEq:
      return own;
    case SpecialRegister::kLaneMaskLt:
      return own - 1;
    case SpecialRegister::kLaneMaskLe:
      return own | (own - 1);
    case SpecialRegister::kLaneMaskGt:
      return ~(own | (own - 1));
    default:
      return ~(own - 1);
  }
}

std::uint64_t uniform_value(const Warp& warp, SpecialRegister which) {
  const Launch& launch = *warp.launch;
  const LaunchConfig& config = launch.config;
  const std::uint64_t threads = std::uint64_t{config.block[0]} * config.block[1] * config.block[2];
  switch (which) {
    case SpecialRegister::kNtidX:
      return config.block[0];
    case SpecialRegister::kNtidY:
      return config.block[1];
    case SpecialRegister::kNtidZ:
      return config.block[2];
    case SpecialRegister::kCtaidX:
      return warp.block->index[0];
    case SpecialRegister::kCtaidY:
      return warp.block->index[1];
    case SpecialRegister::kCtaidZ:
      return warp.block->index[2];
    case SpecialRegister::kNctaidX:
      return config.grid[0];
    case SpecialRegister::kNctaidY:
      return config.grid[1];
    case SpecialRegister::kNctaidZ:
      return config.grid[2];
    case SpecialRegister::kWarpId:
      return warp.index;
    case SpecialRegister::kNwarpId:
      return (threads + kLanes - 1) / kLanes;
    case SpecialRegister::kNsmId:
      return 1;
    case SpecialRegister::kClock:
      return cycles(warp) & 0xffffffffu;
    case SpecialRegister::kClockHi:
      return cycles(warp) >> 32;
    case SpecialRegister::kClock64:
      return cycles(warp);
    case SpecialRegister::kGlobalTimer:
      return clock_ns(warp);
    case SpecialRegister::kGlobalTimerLo:
      return clock_ns(warp) & 0xffffffffu;
    case SpecialRegister::kGlobalTimerHi:
      return clock_ns(warp) >> 32;
    case SpecialRegister::kDynamicShared:
      return config.dynamic_shared_bytes;
    case SpecialRegister::kTotalShared:
      return launch.shared_bytes;
    // Cooperative groups take the address of the grid barrier's memory from these two.
    case SpecialRegister::kEnvReg1:
      return launch.grid_memory.empty() ? 0 : kGridWindow >> 32;
    case SpecialRegister::kEnvReg2:
      return launch.grid_memory.empty() ? 0 : kGridWindow & 0xffffffffu;
    default:
      return 0;
  }
}

const Op* special(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto which = static_cast<SpecialRegister>(op->imm);
  if (which <= SpecialRegister::kTidZ) {
    const int axis = static_cast<int>(op->imm);
    write(warp, op, mask, [&](int i) { return thread_index(warp, axis, i); });
  } else if (which == SpecialRegister::kLaneId) {
    write(warp, op, mask, [](int i) { return i; });
  } else if (which >= SpecialRegister::kLaneMaskEq && which <= SpecialRegister::kLaneMaskGe) {
    write(warp, op, mask, [=](int i) { return lane_mask(which, i); });
  } else {
    const std::uint64_t value = uniform_value(warp, which);
    write(warp, op, mask, [=](int) { return value; });
  }
  return op + 1;
}

const Op* shared_base(Warp& warp, const Op* op, std::uint32_t mask) {
  const std::uint64_t value =
      warp.launch->static_shared_bytes + static_cast<std::uint64_t>(op->imm);
  write(warp, op, mask, [=](int) { return value; });
  return op + 1;
}

const Op* local_address(Warp& warp, const Op* op, std::uint32_t mask) {
  const std::uint64_t value = warp.frame->local_base + static_cast<std::uint64_t>(op->imm);
  write(warp, op, mask, [=](int) { return value; });
  return op + 1;
}

/// d (predicate) = a is in the window that imm names; imm 0: in none of them (global).
const Op* address_space(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto* const a = source<std::uint64_t>(warp, op->a);
  const auto window = static_cast<std::uint64_t>(op->imm);
  auto is_in = [](std::uint64_t address, std::uint64_t base) {
    return address - base < kWindowBytes;
  };
  set_predicate(warp, op->d, collect([=](int i) {
                  if (window != 0) return is_in(a[i], window);
                  return !is_in(a[i], kSharedWindow) && !is_in(a[i], kLocalWindow) &&
                         !is_in(a[i], kParamWindow);
                }),
                mask);
  return op + 1;
}

}  // namespace
}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE

namespace plexrl::simgpu::ptx {

OpFn special_register_op() { return PLEXRL_PTX_LEVEL::special; }
OpFn shared_base_op() { return PLEXRL_PTX_LEVEL::shared_base; }
OpFn local_address_op() { return PLEXRL_PTX_LEVEL::local_address; }
OpFn address_space_op() { return PLEXRL_PTX_LEVEL::address_space; }

}  // namespace plexrl::simgpu::ptx
