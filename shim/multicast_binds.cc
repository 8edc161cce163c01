#include "shim/multicast_binds.h"

#include <algorithm>
#include <utility>

namespace plexrl::shim {

std::optional<MulticastBinds::Bind> MulticastBinds::add(const Bind& bind) {
  const std::lock_guard lock(mutex_);
  const auto older = std::find_if(binds_.begin(), binds_.end(), [&](const Bind& one) {
    return one.object == bind.object && one.device == bind.device && one.offset == bind.offset;
  });
  if (older != binds_.end()) return std::exchange(*older, bind);
  binds_.push_back(bind);
  return std::nullopt;
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
