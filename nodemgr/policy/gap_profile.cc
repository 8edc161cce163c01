#include "nodemgr/policy/gap_profile.h"

#include <algorithm>
#include <cmath>

namespace plexrl::nodemgr::policy {
namespace {

constexpr double kEnough = 2.9;     // three samples, the oldest of them decayed
constexpr double kRemembered = 16;  // samples of earlier runs
constexpr double kClassFloorNs = 1e6;
constexpr double kSpread = 1.125;

const Durations* enough_in(const auto& map, const auto& key) {
  auto it = map.find(key);
  return it != map.end() && it->second.weight() >= kEnough ? &it->second : nullptr;
}

}  // namespace

GapProfile::Class GapProfile::class_of(Duration duration) {
  const double ns = std::max(kClassFloorNs, static_cast<double>(duration.count()));
  return std::min(kLastClass, static_cast<Class>(std::log2(ns / kClassFloorNs) / 2));
}

void GapProfile::add(Duration burst, Duration gap) {
  const Class burst_class = class_of(burst);
  tables_.bursts.add(burst);
  tables_.all.add(gap);
  tables_.by_burst[burst_class].add(gap);
  if (last_gap_ >= 0) tables_.by_gap_and_burst[{last_gap_, burst_class}].add(gap);
  last_gap_ = class_of(gap);
}

GapProfile GapProfile::remembered() const {
  GapProfile known = *this;
  known.last_gap_ = -1;
  Tables& tables = known.tables_;
  for (Durations* one : {&tables.all, &tables.bursts}) *one = one->limited_to(kRemembered);
  for (auto& [burst, gaps] : tables.by_burst) gaps = gaps.limited_to(kRemembered);
  for (auto& [before, gaps] : tables.by_gap_and_burst) gaps = gaps.limited_to(kRemembered);
  return known;
}

const Durations* GapProfile::after(Duration burst) const {
  const Class burst_class = class_of(burst);
  if (auto* found = enough_in(tables_.by_gap_and_burst, std::pair(last_gap_, burst_class)))
    return found;
  if (auto* found = enough_in(tables_.by_burst, burst_class)) return found;
  return tables_.all.weight() >= kEnough ? &tables_.all : nullptr;
}

Duration best_release(const Durations* gaps, Duration earliest, Duration cost) {
  const double from = static_cast<double>(earliest.count());
  const double buy = static_cast<double>(cost.count());
  const double unknown_from = std::max(from, buy);
  if (gaps == nullptr || gaps->quantile_beyond(earliest, 1) == Duration{0}) {
    return Duration(static_cast<std::int64_t>(unknown_from));
  }
  // Waste when released at `at`: gaps that end before cost their length, the others `at` and the
  // switches.
  auto waste = [&](double at) {
    double sum = 0;
    for (const auto& [number, bin] : gaps->bins()) {
      if (bin.mean_ns > from) sum += bin.weight * (bin.mean_ns <= at ? bin.mean_ns : at + buy);
    }
    return sum;
  };
  double best_at = from;
  double least = waste(from);
  auto consider = [&](double at) {
    if (const double sum = waste(at); sum < least) {
      least = sum;
      best_at = at;
    }
  };
  // Gaps of one bin spread around their mean: an eighth later they are over.
  for (const auto& [number, bin] : gaps->bins()) {
    if (bin.mean_ns > from) consider(bin.mean_ns * kSpread);
  }
  consider(unknown_from);
  consider(std::max(gaps->bins().rbegin()->second.mean_ns * kSpread, unknown_from));
  return Duration(static_cast<std::int64_t>(best_at));
}

}  // namespace plexrl::nodemgr::policy
