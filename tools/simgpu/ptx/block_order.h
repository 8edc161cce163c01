#pragma once

#include <cstdint>
#include <numeric>

namespace plexrl::simgpu::ptx {

/// The order in which the blocks of a grid begin: by number, or drawn by a seed. The drawn order
/// takes no memory: a step through the numbers that shares no divisor with their count.
class BlockOrder {
 public:
  BlockOrder() = default;
  /// `seed` 0: by number.
  BlockOrder(std::uint64_t count, std::uint64_t seed) : count_(count) {
    if (seed == 0 || count < 2) return;
    start_ = mix(seed) % count;
    step_ = 1 + mix(seed + 1) % (count - 1);
    while (std::gcd(step_, count) != 1) step_ = step_ % (count - 1) + 1;
  }
  /// The block that begins as the `turn`-th, from 0.
  std::uint64_t operator()(std::uint64_t turn) const {
    if (step_ == 1 && start_ == 0) return turn;
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(turn) * step_ + start_) %
                                      count_);
  }

 private:
  /// The finaliser of SplitMix64.
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  std::uint64_t count_ = 0;
  std::uint64_t start_ = 0;
  std::uint64_t step_ = 1;
};

}  // namespace plexrl::simgpu::ptx
