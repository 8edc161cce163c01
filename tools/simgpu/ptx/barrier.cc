#include <bit>
#include <cstring>

#include "tools/simgpu/ptx/launch.h"

namespace plexrl::simgpu::ptx {
namespace {

/// What barrier.red gives to a lane: see barrier_op.
std::uint32_t reduction(const Barrier& barrier, std::uint8_t mode) {
  switch (mode) {
    case 2:
      return barrier.count;
    case 3:
      return barrier.count == barrier.votes;
    default:
      return barrier.count != 0;
  }
}

/// The lane, which waits at a barrier operation, goes on after it.
void release_lane(Warp& warp, int lane, const Barrier& barrier) {
  const std::uint32_t bit = 1u << lane;
  for (std::uint32_t k = warp.frame_count; k > 0; --k) {
    Frame& frame = *warp.frames[k - 1];
    if ((frame.present & bit) == 0) continue;
    const Op& op = frame.code->ops[frame.pc[lane]];
    if (op.d != kNoOperand) {
      const std::uint32_t value = reduction(barrier, op.mode);
      std::byte* const to = frame.registers + op.d;
      if (op.mode == 2) {
        std::memcpy(to + 4 * lane, &value, 4);
      } else {
        std::uint32_t word;
        std::memcpy(&word, to, 4);
        word = value != 0 ? word | bit : word & ~bit;
        std::memcpy(to, &word, 4);
      }
    }
    ++frame.pc[lane];
    break;
  }
  warp.barred &= ~bit;
}

void complete(Block& block, std::uint32_t id) {
  Barrier& barrier = block.barriers[id];
  for (const auto& warp : block.warps) {
    warp->arrived[id] = 0;
    for (std::uint32_t left = warp->barred; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      if (warp->barrier_id[lane] == id) release_lane(*warp, lane, barrier);
    }
  }
  barrier = Barrier{};
}

void complete_if_full(Block& block, std::uint32_t id) {
  const Barrier& barrier = block.barriers[id];
  if (barrier.arrived == 0) return;
  const std::uint32_t needed = barrier.expected != 0 ? barrier.expected : block.living;
  if (barrier.arrived >= needed) complete(block, id);
}

}  // namespace

bool arrive(Warp& warp, std::uint32_t id, std::uint32_t expected, std::uint32_t mask,
            bool is_arrive, std::uint32_t votes) {
  if (id > 15 || expected % kLanes != 0) return false;
  Block& block = *warp.block;
  Barrier& barrier = block.barriers[id];
  barrier.expected = expected;
  barrier.arrived += static_cast<std::uint32_t>(std::popcount(mask));
  const std::uint32_t before = warp.arrived[id];
  warp.arrived[id] |= mask;
  // A count is in whole warps: when all lanes of a partial warp have come, the missing ones count
  // too.
  if (expected != 0 && (warp.arrived[id] | ~warp.living) == kAllLanes &&
      (before | ~warp.living) != kAllLanes) {
    barrier.arrived += static_cast<std::uint32_t>(std::popcount(~warp.living));
  }
  barrier.votes += static_cast<std::uint32_t>(std::popcount(mask));
  barrier.count += static_cast<std::uint32_t>(std::popcount(votes & mask));
  if (is_arrive) {
    warp.arrived[id] &= ~mask;  // may arrive again for the next phase
  } else {
    warp.barred |= mask;
    barrier.waiting += static_cast<std::uint32_t>(std::popcount(mask));
    for (std::uint32_t left = mask; left != 0; left &= left - 1) {
      warp.barrier_id[std::countr_zero(left)] = static_cast<std::uint8_t>(id);
    }
  }
  complete_if_full(block, id);
  return true;
}

void exit_lanes(Warp& warp, std::uint32_t mask) {
  warp.living &= ~mask;
  warp.active &= ~mask;
  Block& block = *warp.block;
  block.living -= static_cast<std::uint32_t>(std::popcount(mask));
  for (Frame* frame = warp.frame; frame != nullptr;) {
    Frame* const parent = frame->parent;
    leave(warp, frame, mask);
    frame = parent;
  }
  for (std::uint32_t id = 0; id < 16; ++id) {
    if (block.barriers[id].expected == 0) complete_if_full(block, id);
  }
}

}  // namespace plexrl::simgpu::ptx
