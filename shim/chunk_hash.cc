#include "shim/chunk_hash.h"

#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace plexrl::shim::chunk_hash {
namespace {

/// Sums of a part of a block, and the bits in which a word differs from `first`.
struct Sums {
  std::uint64_t of[kStreams] = {};
  std::uint32_t differs = 0;
};

void add_pairs(const std::byte* in, std::size_t from, std::size_t to, const std::byte* key,
               std::uint32_t first, Sums* sums) noexcept {
  for (std::size_t at = from; at < to; at += 8) {
    std::uint32_t words[2];
    std::uint32_t keys[2 * kStreams];
    std::memcpy(words, in + at, sizeof words);
    std::memcpy(keys, key + at, sizeof keys);
    sums->differs |= (words[0] ^ first) | (words[1] ^ first);
    for (std::size_t s = 0; s < kStreams; ++s) {
      sums->of[s] += std::uint64_t{words[0] + keys[2 * s]} * (words[1] + keys[2 * s + 1]);
    }
  }
}

#ifdef __SSE2__

__attribute__((target("avx2"))) std::size_t add_wide(const std::byte* in, std::size_t bytes,
                                                     const std::byte* key, std::uint32_t first,
                                                     Sums* sums) noexcept {
  constexpr std::size_t kStep = 32;
  __m256i totals[kStreams] = {_mm256_setzero_si256(), _mm256_setzero_si256(),
                              _mm256_setzero_si256(), _mm256_setzero_si256()};
  __m256i differs = _mm256_setzero_si256();
  const __m256i same = _mm256_set1_epi32(static_cast<int>(first));
  std::size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + at));
    differs = _mm256_or_si256(differs, _mm256_xor_si256(words, same));
    for (std::size_t s = 0; s < kStreams; ++s) {
      const auto* const keys = reinterpret_cast<const __m256i*>(key + at + 8 * s);
      const __m256i keyed = _mm256_add_epi32(words, _mm256_loadu_si256(keys));
      totals[s] =
          _mm256_add_epi64(totals[s], _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32)));
    }
  }
  alignas(32) std::uint64_t lanes[4];
  for (std::size_t s = 0; s < kStreams; ++s) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), totals[s]);
    sums->of[s] = lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }
  sums->differs = _mm256_testz_si256(differs, differs) != 0 ? 0 : 1;
  return at;
}

bool has_wide() noexcept {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

#endif

}  // namespace

bool hash_block(const std::byte* in, std::size_t bytes, const std::byte* key, std::uint32_t first,
                std::uint64_t (&out)[kStreams]) noexcept {
  Sums sums;
  std::size_t done = 0;
#ifdef __SSE2__
  if (has_wide()) done = add_wide(in, bytes, key, first, &sums);
#endif
  add_pairs(in, done, bytes, key, first, &sums);
  std::memcpy(out, sums.of, sizeof out);
  return sums.differs != 0;
}

}  // namespace plexrl::shim::chunk_hash
