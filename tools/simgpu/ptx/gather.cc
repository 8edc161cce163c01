#include "tools/simgpu/ptx/gather.h"

#include <bit>

namespace plexrl::simgpu::ptx {

bool gather(Warp& warp, const Op* op, std::uint32_t mask, const std::uint32_t* member_masks) {
  if (warp.is_forced) {
    warp.is_forced = false;
    return true;
  }
  std::uint32_t members = 0;
  for (std::uint32_t left = mask; left != 0; left &= left - 1)
    members |= member_masks[std::countr_zero(left)];
  const std::uint32_t missing = members & warp.living & ~mask & ~warp.barred;
  if (missing == 0) return true;
  Frame& frame = *warp.frame;
  const auto pc = static_cast<std::uint32_t>(op - frame.code->ops.data());
  std::uint32_t here = 0;
  for (std::uint32_t left = missing & warp.parked & frame.present; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (frame.pc[lane] == pc) here |= 1u << lane;
  }
  if ((missing & ~here) == 0) {
    warp.parked &= ~here;  // all are here: they become active together
  } else {
    for (std::uint32_t left = mask; left != 0; left &= left - 1)
      frame.pc[std::countr_zero(left)] = pc;
    warp.parked |= mask;
    warp.active &= ~mask;
  }
  warp.event = Event::kRegroup;
  warp.next = nullptr;
  return false;
}

}  // namespace plexrl::simgpu::ptx
