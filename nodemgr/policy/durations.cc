#include "nodemgr/policy/durations.h"

#include <algorithm>
#include <cmath>

namespace plexrl::nodemgr::policy {
namespace {

constexpr double kShortestNs = 1e5;
constexpr double kBinsPerOctave = 4;
constexpr double kKept = 63.0 / 64.0;
constexpr double kForgottenBelow = 1e-3;

int bin_of(double ns) {
  if (ns <= kShortestNs) return 0;
  return std::min(Durations::kLastBin,
                  1 + static_cast<int>(std::log2(ns / kShortestNs) * kBinsPerOctave));
}

Duration as_duration(double ns) { return Duration(static_cast<std::int64_t>(ns)); }

}  // namespace

void Durations::add(Duration sample) {
  for (auto it = bins_.begin(); it != bins_.end();) {
    it->second.weight *= kKept;
    it = it->second.weight < kForgottenBelow ? bins_.erase(it) : std::next(it);
  }
  const double ns = std::max(0.0, static_cast<double>(sample.count()));
  Bin& bin = bins_[bin_of(ns)];
  bin.weight += 1;
  bin.mean_ns += (ns - bin.mean_ns) / bin.weight;
}

Durations Durations::limited_to(double most) const {
  Durations limited = *this;
  const double factor = std::min(1.0, most / std::max(most, weight()));
  for (auto& [number, bin] : limited.bins_) bin.weight *= factor;
  return limited;
}

double Durations::weight() const {
  double sum = 0;
  for (const auto& [number, bin] : bins_) sum += bin.weight;
  return sum;
}

Duration Durations::quantile(double q) const {
  return quantile_beyond(Duration{-1}, q) - Duration{1};
}

Duration Durations::mean_beyond(Duration so_far) const {
  const double from = static_cast<double>(so_far.count());
  double weight = 0;
  double sum = 0;
  for (const auto& [number, bin] : bins_) {
    if (bin.mean_ns <= from) continue;
    weight += bin.weight;
    sum += bin.weight * (bin.mean_ns - from);
  }
  return weight == 0 ? Duration{0} : as_duration(sum / weight);
}

Duration Durations::quantile_beyond(Duration so_far, double q) const {
  const double from = static_cast<double>(so_far.count());
  double weight = 0;
  for (const auto& [number, bin] : bins_) {
    if (bin.mean_ns > from) weight += bin.weight;
  }
  double left = weight * std::clamp(q, 0.0, 1.0);
  double last = from;
  for (const auto& [number, bin] : bins_) {
    if (bin.mean_ns <= from) continue;
    last = bin.mean_ns;
    left -= bin.weight;
    if (left <= 0) break;
  }
  return as_duration(last - from);
}

}  // namespace plexrl::nodemgr::policy
