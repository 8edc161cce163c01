#include "tools/trace/gap_report.h"

#include <algorithm>
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

void GapSums::add(const Gap& gap) {
  longest_.push_back(gap);
  if (longest_.size() > 2 * count_) keep_longest();
  for (const CauseTime& one : causes_of(gap)) {
    CauseTotal& sum = causes_[{one.cause, one.detail}];
    sum.cause = one.cause;
    sum.detail = one.detail;
    ++sum.gaps;
    sum.total_ns += one.time_ns;
  }
  if (histogram_.empty()) histogram_.push_back({0, 1'000'000});
  while (histogram_.back().to_ns <= gap.length_ns()) {
    const std::int64_t edge = histogram_.back().to_ns;
    histogram_.push_back({edge, next_edge(edge)});
  }
  for (GapBucket& bucket : histogram_) {
    if (gap.length_ns() >= bucket.to_ns) continue;
    ++bucket.count;
    bucket.total_ns += gap.length_ns();
    break;
  }
}

void GapSums::keep_longest() {
  std::stable_sort(longest_.begin(), longest_.end(),
                   [](const Gap& a, const Gap& b) { return a.length_ns() > b.length_ns(); });
  if (longest_.size() > count_)
    longest_.erase(longest_.begin() + static_cast<std::ptrdiff_t>(count_), longest_.end());
}

GapReport GapSums::report() const {
  GapSums sorted = *this;
  sorted.keep_longest();
  GapReport report{std::move(sorted.longest_), {}, histogram_};
  for (const auto& [key, sum] : causes_) report.causes.push_back(sum);
  std::stable_sort(
      report.causes.begin(), report.causes.end(),
      [](const CauseTotal& a, const CauseTotal& b) { return a.total_ns > b.total_ns; });
  return report;
}

GapReport gap_report(const Model& model, std::size_t longest) {
  GapSums sums(longest);
  for (const Gap& gap : model.gaps) sums.add(gap);
  return sums.report();
}

}  // namespace plexrl::trace
