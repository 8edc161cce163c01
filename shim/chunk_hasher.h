#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "interpose/cuda_api.h"

namespace plexrl::shim {

/// Hashes chunks where they are, on the device, in one context (chunk_hash.h: which hash, and how
/// surely it tells two chunks apart). The key is drawn once for the process.
///
/// Several chunks can be under way, in a stream of its own. What it takes in HBM is under 1 MiB, of
/// the driver's own memory. All functions need the context current, and whoever calls them sees to
/// it that nothing writes to the chunk between `start` and `wait`. One thread at a time.
class ChunkHasher {
 public:
  static constexpr std::size_t kSlots = 16;  ///< chunks under way
  static constexpr std::size_t kLargestBytes = std::size_t{64} << 20;

  using Digest = std::array<std::uint64_t, 4>;
  struct Result {
    Digest digest{};
    bool is_repeated = false;  ///< every word is `word`
    std::uint32_t word = 0;
  };

  ChunkHasher() = default;
  ChunkHasher(const ChunkHasher&) = delete;
  ChunkHasher& operator=(const ChunkHasher&) = delete;

  /// Loads the kernel into the current context, once. False: it can't be had now.
  bool open() noexcept;
  bool is_open() const noexcept { return module_ != nullptr; }
  /// Nothing may be under way. For a context that is about to end, too.
  void close() noexcept;

  /// Begins to hash `bytes`, a multiple of 8, at `address`. None: too large, all slots are in use,
  /// or the driver refused. Every slot has to be waited for.
  std::optional<std::size_t> start(CUdeviceptr address, std::size_t bytes) noexcept;
  /// Errors: the driver's; `*result` is then untouched.
  CUresult wait(std::size_t slot, Result* result) noexcept;

 private:
  bool prepare() noexcept;
  bool enqueue(CUdeviceptr address, std::size_t bytes, std::size_t slot) noexcept;

  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
  std::byte* host_ = nullptr;  ///< pinned: the keys on their way, and the slots
  CUdeviceptr slots_ = 0;      ///< the slots as the device sees them
  std::array<CUevent, kSlots> events_{};
  std::vector<std::size_t> free_slots_;
};

}  // namespace plexrl::shim
