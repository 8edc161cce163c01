#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct evp_cipher_ctx_st;

namespace plexrl::nodemgr::disk {

/// 256 bits in a page of their own that is locked, left out of core dumps and of children, and
/// wiped at the end.
class ChunkKey {
 public:
  static constexpr std::size_t kBytes = 32;

  /// A new one of the kernel's random numbers. Errors: no memory.
  static absl::StatusOr<std::unique_ptr<ChunkKey>> random();
  /// Copies `bytes`; wiping them is the caller's.
  static absl::StatusOr<std::unique_ptr<ChunkKey>> copy_of(std::span<const std::uint8_t> bytes);
  ChunkKey(const ChunkKey&) = delete;
  ChunkKey& operator=(const ChunkKey&) = delete;
  ~ChunkKey();

  std::span<const std::uint8_t, kBytes> bytes() const {
    return std::span<const std::uint8_t, kBytes>(page_, kBytes);
  }
  /// False: the limit on locked memory (RLIMIT_MEMLOCK) forbids it, and the key could reach swap.
  bool is_locked() const { return is_locked_; }

 private:
  explicit ChunkKey(std::uint8_t* page) : page_(page) {}
  static absl::StatusOr<std::unique_ptr<ChunkKey>> make();

  std::uint8_t* page_;
  bool is_locked_ = false;
};

/// What opens a sealed chunk again, beside the key and its place.
struct Seal {
  std::array<std::uint8_t, 12> nonce{};
  std::array<std::uint8_t, 16> tag{};  ///< of AES-GCM: the checksum of bytes and place
};

/// One chunk through AES-256-GCM, piece by piece, in place. `place` is authenticated with it, so
/// that bytes of another place don't pass. A nonce must not be used twice with one key to seal.
///
/// OpenSSL keeps an expanded key while this object lives, outside of locked memory, and wipes it
/// with it: use one for a chunk.
class ChunkCipher {
 public:
  enum class Way { kSeal, kOpen };

  /// Errors: OpenSSL's, with its text.
  static absl::StatusOr<ChunkCipher> begin(Way way, const ChunkKey& key, const Seal& seal,
                                           std::uint64_t place);
  ChunkCipher(ChunkCipher&&) noexcept;
  ~ChunkCipher();

  [[nodiscard]] absl::Status update(std::span<std::byte> piece);
  /// After the last piece of a chunk that is sealed: its tag.
  absl::StatusOr<std::array<std::uint8_t, 16>> tag();
  /// After the last piece of a chunk that is opened. False: these are not the bytes that were
  /// sealed there; nothing of what came out may be used.
  bool is_genuine(const Seal& seal);

 private:
  explicit ChunkCipher(evp_cipher_ctx_st* context) : context_(context) {}
  evp_cipher_ctx_st* context_;
};

}  // namespace plexrl::nodemgr::disk
