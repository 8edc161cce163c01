#include "tools/simgpu/driver/nic_table.h"

#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

bool is_device(std::uint64_t address) {
  const Driver* const d = driver();
  return d != nullptr && d->addresses.in_arena(address);
}

std::byte* physical(std::uint64_t address, std::uint64_t* contiguous) {
  const Driver* const d = driver();
  if (d == nullptr || !d->addresses.in_arena(address)) return nullptr;
  for (const int device : d->visible) {
    std::byte* const there = d->addresses.translate(device, address, contiguous);
    if (there != nullptr) return there;
  }
  return nullptr;
}

}  // namespace

const NicTable& nic_table() {
  static constexpr NicTable kTable = {sizeof(NicTable), &is_device, &physical};
  return kTable;
}

}  // namespace plexrl::simgpu
