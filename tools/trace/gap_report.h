#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
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

struct GapReport {
  std::vector<Gap> longest;          ///< the longest first
  std::vector<CauseTotal> causes;    ///< the largest first
  std::vector<GapBucket> histogram;  ///< by length: below 1 ms, then three buckets a decade
                                     ///< (1-2-5), as far as there are gaps
};

/// Counts gaps one by one, so that they need not all be in memory: what it keeps is the `longest`
/// longest, and a sum for each cause with its detail.
class GapSums {
 public:
  explicit GapSums(std::size_t longest) : count_(longest) {}
  void add(const Gap& gap);
  GapReport report() const;

 private:
  void keep_longest();

  std::size_t count_;
  std::vector<Gap> longest_;  ///< at most twice as many, in the order in which they came
  std::map<std::pair<std::string, std::string>, CauseTotal> causes_;
  std::vector<GapBucket> histogram_;
};

/// Of all gaps of the model.
GapReport gap_report(const Model& model, std::size_t longest);

}  // namespace plexrl::trace
