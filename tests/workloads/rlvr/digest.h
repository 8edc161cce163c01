#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

/// A fast 128-bit fingerprint of a byte stream, to compare the results of two runs. Not
/// cryptographic. The result depends on the bytes and on their order, and on how they were split
/// into `add` calls only if a split is not a multiple of 32 bytes.
namespace plexrl::workloads {

class Digest {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    total_ += bytes;
    for (; bytes >= 32; at += 32, bytes -= 32) block(at);
    if (bytes == 0) return;
    unsigned char last[32] = {};
    std::memcpy(last, at, bytes);
    block(last);
  }

  /// 32 hex digits.
  std::string hex() const {
    const std::uint64_t high = finish(lanes_[0] ^ rotate(lanes_[1], 23) ^ total_);
    const std::uint64_t low = finish(lanes_[2] ^ rotate(lanes_[3], 29) ^ high);
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(high),
                  static_cast<unsigned long long>(low));
    return text;
  }

 private:
  static std::uint64_t rotate(std::uint64_t x, int by) { return x << by | x >> (64 - by); }
  static std::uint64_t finish(std::uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
  }
  void block(const unsigned char* at) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), at, 32);
    for (int i = 0; i < 4; ++i)
      lanes_[i] = rotate(lanes_[i] ^ words[i] * 0x9E3779B185EBCA87u, 31) * 0xC2B2AE3D27D4EB4Fu + i;
    std::uint64_t carry = lanes_[0];
    for (int i = 0; i < 3; ++i) lanes_[i] ^= lanes_[i + 1] >> 47;
    lanes_[3] ^= carry >> 47;
  }

  std::array<std::uint64_t, 4> lanes_ = {0x60EA27EEADC0B5D6u, 0xC2B2AE3D27D4EB4Fu,
                                         0x165667B19E3779F9u, 0x27D4EB2F165667C5u};
  std::uint64_t total_ = 0;
};

}  // namespace plexrl::workloads
