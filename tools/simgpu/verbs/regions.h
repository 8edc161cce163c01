#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "tools/simgpu/verbs/verbs_api.h"

namespace plexrl::simgpu::verbs {

/// Where the bytes of a region lay when it was registered.
struct Piece {
  std::byte* memory;
  std::size_t bytes;
};

/// The pieces of `bytes` at an address of the host or of a device. False: nothing is mapped at one
/// of them.
bool find_pieces(void* address, std::size_t bytes, std::vector<Piece>* pieces);

/// What is registered, by key. Threads: any.
class Regions {
 public:
  /// Gives `region` its keys. The caller owns it.
  void add(ibv_mr* region, std::uint64_t iova, std::vector<Piece> pieces);
  void change(const ibv_mr* region, std::uint64_t iova, std::vector<Piece> pieces);
  bool remove(const ibv_mr* region);
  bool uses(const ibv_pd* pd) const;

  /// Calls `copy` with the memory behind each stretch of the bytes, in order; false, and no call,
  /// where some of them are not in the region.
  template <typename Copy>
  bool for_bytes(std::uint32_t key, std::uint64_t address, std::size_t bytes, Copy copy) const {
    const std::lock_guard lock(mutex_);
    const auto it = regions_.find(key);
    if (it == regions_.end()) return false;
    const Region& region = it->second;
    std::uint64_t skip = address - region.iova;
    if (skip > region.bytes || bytes > region.bytes - skip) return false;
    for (const Piece& piece : region.pieces) {
      if (skip >= piece.bytes) {
        skip -= piece.bytes;
        continue;
      }
      const std::size_t part = piece.bytes - skip < bytes ? piece.bytes - skip : bytes;
      copy(piece.memory + skip, part);
      bytes -= part;
      skip = 0;
      if (bytes == 0) break;
    }
    return true;
  }

 private:
  struct Region {
    const ibv_mr* region;
    std::uint64_t iova;
    std::size_t bytes;
    std::vector<Piece> pieces;
  };

  mutable std::mutex mutex_;
  std::map<std::uint32_t, Region> regions_;
  std::uint32_t last_key_ = 0x100;
};

}  // namespace plexrl::simgpu::verbs
