#include "shim/pins.h"

#include <algorithm>

namespace plexrl::shim {

Pins::Hold Pins::hold(CUdevice device, std::uint64_t address, std::size_t bytes,
                      const PinReason& reason, Held* held) {
  const std::lock_guard turn(holding_);
  const auto pinned = ranges_.pin(address, bytes, reason);
  if (!pinned) return Hold::kNotOwned;
  if (pinned->fresh == 0 || devices_.pin(device, pinned->fresh)) {
    *held = {device, address, bytes, pinned->range, &reason};
    return Hold::kHeld;
  }
  // What others have let go of meanwhile has been charged, what was fresh has not.
  const std::uint64_t loose = ranges_.unpin(address, bytes, pinned->range, reason);
  devices_.unpin(device, loose - std::min(loose, pinned->fresh));
  return Hold::kNoRoom;
}

void Pins::let_go(const Held& held) {
  devices_.unpin(held.device, ranges_.unpin(held.address, held.bytes, held.range, *held.reason));
}

}  // namespace plexrl::shim
