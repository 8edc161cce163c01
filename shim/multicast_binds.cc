#include "shim/multicast_binds.h"

#include <algorithm>

namespace plexrl::shim {

void MulticastBinds::add(const Bind& bind) {
  const std::lock_guard lock(mutex_);
  binds_.push_back(bind);
}

std::optional<MulticastBinds::Bind> MulticastBinds::take(CUmemGenericAllocationHandle object,
                                                         CUdevice device, std::size_t offset,
                                                         std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(binds_.begin(), binds_.end(), [&](const Bind& bind) {
    return bind.object == object && bind.device == device && bind.offset == offset &&
           bind.bytes == bytes;
  });
  if (it == binds_.end()) return std::nullopt;
  const Bind bind = *it;
  binds_.erase(it);
  return bind;
}

}  // namespace plexrl::shim
