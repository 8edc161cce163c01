#include "shim/pins.h"

namespace plexrl::shim {

Pins::Hold Pins::hold(CUdevice device, std::uint64_t address, std::size_t bytes,
                      const char* reason) {
  std::uint64_t fresh = 0;
  if (!ranges_.pin(address, bytes, reason, &fresh)) return Hold::kNotOwned;
  if (fresh == 0 || devices_.pin(device, fresh)) return Hold::kHeld;
  ranges_.unpin(address, bytes);
  return Hold::kNoRoom;
}

void Pins::let_go(CUdevice device, std::uint64_t address, std::size_t bytes) {
  devices_.unpin(device, ranges_.unpin(address, bytes));
}

}  // namespace plexrl::shim
