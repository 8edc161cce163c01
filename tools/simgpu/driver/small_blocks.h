#pragma once

#include <cstdint>
#include <functional>
#include <map>

namespace plexrl::simgpu {

/// Small device allocations of one context: parts of shared 2 MiB frames, at 512-byte alignment.
/// Threads: the caller locks.
class SmallBlocks {
 public:
  static constexpr std::uint64_t kAlignment = 512;
  static constexpr std::uint64_t kLargest = 1ull << 20;

  /// `make` maps a fresh frame and returns its address (0: none left); `drop` unmaps one that
  /// became empty.
  SmallBlocks(std::function<std::uint64_t()> make, std::function<void(std::uint64_t)> drop);

  std::uint64_t allocate(std::uint64_t bytes);  ///< 0: no memory left
  /// False when `address` is not the start of a living allocation.
  bool free(std::uint64_t address);

 private:
  struct Block {
    std::map<std::uint64_t, std::uint64_t> holes;  // address -> bytes
    std::uint64_t used = 0;
  };
  std::function<std::uint64_t()> make_;
  std::function<void(std::uint64_t)> drop_;
  std::map<std::uint64_t, Block> blocks_;          // by address of the frame
  std::map<std::uint64_t, std::uint64_t> living_;  // address -> rounded bytes
};

}  // namespace plexrl::simgpu
