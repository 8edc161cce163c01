#include "shim/pins.h"

namespace plexrl::shim {

Pins::Hold Pins::hold(CUdevice device, std::uint64_t address, std::size_t bytes,
                      const PinReason& reason, Held* held) {
  const auto pinned = ranges_.pin(address, bytes, reason);
  if (!pinned) return Hold::kNotOwned;
  if (pinned->fresh == 0 || devices_.pin(device, pinned->fresh)) {
    *held = {device, address, bytes, pinned->range, &reason};
    return Hold::kHeld;
  }
  ranges_.unpin(address, bytes, pinned->range, reason);
  return Hold::kNoRoom;
}

void Pins::let_go(const Held& held) {
  devices_.unpin(held.device, ranges_.unpin(held.address, held.bytes, held.range, *held.reason));
}

}  // namespace plexrl::shim
