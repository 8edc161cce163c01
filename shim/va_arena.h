#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace plexrl::shim {

/// Which parts of some spans of addresses are taken. Knows nothing of the driver: the caller adds
/// spans it has reserved.
///
/// First fit, neighbours are joined when they come back. Addresses and sizes are multiples of the
/// unit that the caller works in. Threads: the caller locks.
class VaArena {
 public:
  /// Adds a span that was reserved. It never leaves again: giving addresses back to the driver and
  /// reserving them anew would be a race with the job's own reservations.
  void add(std::uint64_t start, std::size_t bytes);

  /// Takes `bytes` from a free part; none when no part is long enough.
  std::optional<std::uint64_t> take(std::size_t bytes);

  /// Takes just these; false, and nothing changes, unless all of them are free.
  bool take_at(std::uint64_t start, std::size_t bytes);

  /// Gives back what was taken, whole or in parts.
  void put(std::uint64_t start, std::size_t bytes);

  std::size_t free_bytes() const noexcept;

  /// Calls `visit(start, bytes)` for each free part, in order.
  template <typename Visit>
  void each(Visit visit) const {
    for (const auto& [start, bytes] : free_) visit(start, bytes);
  }

 private:
  std::map<std::uint64_t, std::size_t> free_;  ///< start -> bytes, no two adjacent
};

}  // namespace plexrl::shim
