#pragma once

#include <cstddef>

namespace plexrl::shim {

struct HostSlab;

/// A piece of host memory from HostStore, for the bytes of one chunk. Owned by whoever holds it,
/// until HostStore::put.
struct HostSpan {
  HostSlab* slab = nullptr;
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  bool is_read_only = false;  ///< in this process (HostStore::make_read_only)
  explicit operator bool() const noexcept { return address != nullptr; }
};

}  // namespace plexrl::shim
