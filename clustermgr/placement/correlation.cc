#include "clustermgr/placement/correlation.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace plexrl::clustermgr::placement {
namespace {

/// Which bins from the first burst on are busy, as bits; the length is in bins.
struct Bins {
  std::vector<std::uint64_t> words;
  std::size_t count = 0;
  bool at(std::size_t i) const { return (words[i / 64] >> (i % 64) & 1) != 0; }
};

Bins bins_of(std::span<const Burst> bursts, Duration bin, std::size_t count) {
  Bins bins;
  bins.count = count;
  bins.words.assign((count + 63) / 64 + 1, 0);
  Instant zero = bursts.front().wanted;
  for (const Burst& burst : bursts) {
    // Without the wait for its lease, as if it had been alone.
    Instant ended = burst.wanted + burst.work;
    for (auto i = static_cast<std::size_t>((burst.wanted - zero) / bin);
         i < count && zero + bin * static_cast<std::int64_t>(i) < ended; ++i) {
      bins.words[i / 64] |= std::uint64_t{1} << (i % 64);
    }
  }
  return bins;
}

std::size_t length_of(std::span<const Burst> bursts, Duration bin) {
  if (bursts.size() < 2) return 0;
  return static_cast<std::size_t>((bursts.back().wanted - bursts.front().wanted) / bin);
}

/// `twice` holds the bits of b two times over, so that every shift is one run of words.
std::size_t both_busy(const Bins& a, const Bins& twice, std::size_t lag) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < a.count; i += 64) {
    std::size_t from = i + lag;
    std::uint64_t b = twice.words[from / 64] >> (from % 64);
    if (from % 64 != 0) b |= twice.words[from / 64 + 1] << (64 - from % 64);
    std::uint64_t word = a.words[i / 64] & b;
    if (a.count - i < 64) word &= (std::uint64_t{1} << (a.count - i)) - 1;
    sum += static_cast<std::size_t>(__builtin_popcountll(word));
  }
  return sum;
}

}  // namespace

Correlation correlate(std::span<const Burst> a, std::span<const Burst> b, Duration bin) {
  Correlation result;
  std::size_t count = std::min(length_of(a, bin), length_of(b, bin));
  if (count == 0) return result;
  Bins bits_a = bins_of(a, bin, count);
  Bins bits_b = bins_of(b, bin, count);
  Bins twice;
  twice.count = 2 * count;
  twice.words.assign((2 * count + 63) / 64 + 2, 0);
  std::size_t busy_a = 0;
  std::size_t busy_b = 0;
  for (std::size_t i = 0; i < count; ++i) {
    busy_a += bits_a.at(i) ? 1 : 0;
    if (!bits_b.at(i)) continue;
    ++busy_b;
    for (std::size_t j : {i, i + count}) twice.words[j / 64] |= std::uint64_t{1} << (j % 64);
  }
  std::size_t best = count + 1;
  std::size_t best_lag = 0;
  double all = 0;
  for (std::size_t lag = 0; lag < count; ++lag) {
    std::size_t overlap = both_busy(bits_a, twice, lag);
    all += static_cast<double>(overlap);
    if (overlap >= best) continue;
    best = overlap;
    best_lag = lag;
  }
  const auto n = static_cast<double>(count);
  result.duty_a = static_cast<double>(busy_a) / n;
  result.duty_b = static_cast<double>(busy_b) / n;
  result.best_overlap = static_cast<double>(best) / n;
  result.best_lag_s = static_cast<double>(best_lag) * seconds(bin);
  result.mean_overlap = all / n / n;
  double spread =
      std::sqrt(result.duty_a * (1 - result.duty_a) * result.duty_b * (1 - result.duty_b));
  if (spread > 0) {
    result.phi_at_best = (result.best_overlap - result.duty_a * result.duty_b) / spread;
  }
  return result;
}

}  // namespace plexrl::clustermgr::placement
