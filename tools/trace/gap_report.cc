#include "tools/trace/gap_report.h"

#include <algorithm>
#include <map>
#include <utility>

namespace plexrl::trace {
namespace {

// 1, 2, 5, 10, 20, 50 ... milliseconds.
std::int64_t next_edge(std::int64_t edge) {
  std::int64_t decade = 1'000'000;
  while (decade * 10 <= edge) decade *= 10;
  return edge / decade == 2 ? decade * 5 : edge / decade == 5 ? decade * 10 : edge * 2;
}

}  // namespace

std::vector<CauseTotal> gap_causes(const Model& model) {
  std::map<std::pair<std::string, std::string>, CauseTotal> sums;
  for (const Gap& gap : model.gaps) {
    for (const CauseTime& one : causes_of(gap)) {
      CauseTotal& sum = sums[{one.cause, one.detail}];
      sum.cause = one.cause;
      sum.detail = one.detail;
      ++sum.gaps;
      sum.total_ns += one.time_ns;
    }
  }
  std::vector<CauseTotal> list;
  for (auto& [key, sum] : sums) list.push_back(std::move(sum));
  std::stable_sort(list.begin(), list.end(), [](const CauseTotal& a, const CauseTotal& b) {
    return a.total_ns > b.total_ns;
  });
  return list;
}

std::vector<Gap> longest_gaps(const Model& model, std::size_t count) {
  std::vector<Gap> gaps = model.gaps;
  std::stable_sort(gaps.begin(), gaps.end(),
                   [](const Gap& a, const Gap& b) { return a.length_ns() > b.length_ns(); });
  if (gaps.size() > count) gaps.resize(count);
  return gaps;
}

std::vector<GapBucket> gap_histogram(const Model& model) {
  std::vector<GapBucket> buckets;
  std::int64_t longest = 0;
  for (const Gap& gap : model.gaps) longest = std::max(longest, gap.length_ns());
  if (model.gaps.empty()) return buckets;
  buckets.push_back({0, 1'000'000});
  while (buckets.back().to_ns <= longest) {
    const std::int64_t edge = buckets.back().to_ns;
    buckets.push_back({edge, next_edge(edge)});
  }
  for (const Gap& gap : model.gaps) {
    for (GapBucket& bucket : buckets) {
      if (gap.length_ns() >= bucket.to_ns) continue;
      ++bucket.count;
      bucket.total_ns += gap.length_ns();
      break;
    }
  }
  return buckets;
}

}  // namespace plexrl::trace
