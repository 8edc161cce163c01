#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "shim/va_arena.h"

namespace plexrl::shim {

/// Small requests inside shared blocks, because the driver maps memory in units of 2 MiB only.
///
/// Every answer is a multiple of kAlignment, the alignment that cuMemAlloc of the bare driver gives
/// in practice (the reference promises "suitably aligned for any kind of variable"; programs rely
/// on 256 and 512). A block that nothing is left in can be taken away again. Bookkeeping is
/// outside the blocks, which may not be in memory at all. Threads: the caller locks.
class Suballocator {
 public:
  static constexpr std::size_t kAlignment = 512;
  static constexpr std::size_t kBlockBytes = std::size_t{2} << 20;
  /// A larger request gets chunks of its own.
  static constexpr std::size_t kLargeBytes = std::size_t{1} << 20;

  struct Allocation {
    std::uint64_t address;
    std::size_t bytes;         ///< as asked for
    std::uint64_t block;       ///< start of the block it lies in
    std::uint64_t identifier;  ///< unique in this process, never reused
  };

  /// A place for `bytes` (1 … kLargeBytes) in some block; none when a block must be added first.
  std::optional<Allocation> allocate(std::size_t bytes);

  /// Adds an empty block of kBlockBytes.
  void add_block(std::uint64_t start);

  /// The allocation that holds `address`, which may be inside it.
  std::optional<Allocation> find(std::uint64_t address) const;

  /// Frees the allocation that begins at `address`. Returns its block's start when the block is now
  /// empty; the block has then been taken away from here and belongs to the caller.
  /// `*found` says whether an allocation began there.
  std::optional<std::uint64_t> free(std::uint64_t address, bool* found);

  std::size_t block_count() const noexcept { return blocks_.size(); }

 private:
  struct Block {
    VaArena space;
    std::size_t allocations = 0;
  };
  std::map<std::uint64_t, Block> blocks_;            ///< by start
  std::map<std::uint64_t, Allocation> allocations_;  ///< by address
  std::uint64_t next_identifier_ = 1;
};

}  // namespace plexrl::shim
