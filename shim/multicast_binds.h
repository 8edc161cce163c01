#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/pins.h"

namespace plexrl::shim {

/// What memory of ours is bound to which multicast object, so that it may be paged again when it is
/// unbound. Threads: any.
class MulticastBinds {
 public:
  struct Bind {
    CUmemGenericAllocationHandle object;
    std::size_t offset;  ///< in the object
    std::size_t bytes;
    CUdevice device;
    std::uint64_t address;  ///< of the memory, as the pager has it
    std::optional<Pins::Held> held = {};
    /// As the driver was told: offset in the object, bytes. It wants them back in the same pieces.
    std::vector<std::pair<std::size_t, std::size_t>> pieces = {};
  };

  /// Takes out an older one that began at the same place, which nobody can unbind any more: its
  /// object was released, and the driver has given the name to another.
  [[nodiscard]] std::optional<Bind> add(const Bind& bind);
  /// Takes out what was bound just there; none: it was not ours.
  std::optional<Bind> take(CUmemGenericAllocationHandle object, CUdevice device, std::size_t offset,
                           std::size_t bytes);

 private:
  std::mutex mutex_;
  std::vector<Bind> binds_;
};

}  // namespace plexrl::shim
