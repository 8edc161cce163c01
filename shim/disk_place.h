#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace plexrl::shim {

/// Where the bytes of one chunk are in this process's spill file, and what opens them again: a seal
/// for each piece, of SpillStore::piece_bytes but the last. Owned by whoever holds it, until
/// SpillStore::put.
struct DiskPlace {
  struct Seal {
    std::array<std::uint8_t, 12> nonce{};
    std::array<std::uint8_t, 16> tag{};
  };
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< 0: none
  std::uint64_t piece_bytes = 0;
  std::vector<Seal> seals;

  explicit operator bool() const noexcept { return bytes != 0; }
  std::size_t pieces() const noexcept { return seals.size(); }
  std::uint64_t start_of(std::size_t piece) const noexcept { return piece * piece_bytes; }
  std::uint64_t bytes_of(std::size_t piece) const noexcept {
    const std::uint64_t left = bytes - start_of(piece);
    return left < piece_bytes ? left : piece_bytes;
  }
};

}  // namespace plexrl::shim
