#pragma once

#include <cstdint>
#include <vector>

#include "tools/trace/model.h"

namespace plexrl::trace {

/// Gaps of a length from `from_ns` (included) to `to_ns` (excluded).
struct GapBucket {
  std::int64_t from_ns, to_ns;
  std::uint64_t count = 0;
  std::int64_t total_ns = 0;
};

/// What gaps were due to, all of them together.
struct CauseTotal {
  std::string cause, detail;
  std::uint64_t gaps = 0;
  std::int64_t total_ns = 0;
};

/// The largest first.
std::vector<CauseTotal> gap_causes(const Model& model);

/// The `count` longest, longest first.
std::vector<Gap> longest_gaps(const Model& model, std::size_t count);

/// By length: below 1 ms, then three buckets a decade (1-2-5), as far as there are gaps.
std::vector<GapBucket> gap_histogram(const Model& model);

}  // namespace plexrl::trace
