#pragma once

#include <atomic>
#include <cstdint>

namespace plexrl::shim {

/// Grows when an allocation of whatever kind ends: who remembers where one is forgets it then.
/// A write of a shared word for each free; none for what looks.
inline constinit std::atomic<std::uint64_t> allocation_ends{0};

inline void note_allocation_end() noexcept {
  allocation_ends.fetch_add(1, std::memory_order_release);
}

}  // namespace plexrl::shim
