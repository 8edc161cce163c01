#include "clustermgr/placement/profile.h"

#include <algorithm>
#include <cmath>

namespace plexrl::clustermgr::placement {
namespace {

constexpr double kForEver = 1e9;

std::size_t pacing_gang(const JobProfile& job) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < job.gangs.size(); ++i) {
    if (job.gangs[i].bursts.size() < job.gangs[best].bursts.size()) best = i;
  }
  return best;
}

/// Time in [from, to) in which the gang waited for a lease.
double waited_s(const GangProfile& gang, Instant from, Instant to) {
  double sum = 0;
  for (const Burst& burst : gang.bursts) {
    if (burst.wanted < from || burst.wanted >= to) continue;
    sum += seconds(burst.ended - burst.wanted - burst.work);
  }
  return sum;
}

/// From what its gangs have been like on the whole; the one with the longest round paces the job.
JobShape usual_shape(const JobProfile& job) {
  JobShape shape;
  shape.gangs.resize(job.gangs.size());
  for (const GangProfile& gang : job.gangs) {
    if (!gang.usual) return shape;
    const double round = seconds(gang.usual->burst + gang.usual->gap);
    if (round <= shape.period_s) continue;
    shape.period_s = round;
    shape.period_cv = gang.usual->cv;
  }
  if (shape.period_s <= 0) return shape;
  for (std::size_t g = 0; g < job.gangs.size(); ++g) {
    const UsualRound& usual = *job.gangs[g].usual;
    const double round = seconds(usual.burst + usual.gap);
    shape.gangs[g].bursts = round > 0 ? shape.period_s / round : 0;
    shape.gangs[g].work_s = shape.gangs[g].bursts * seconds(usual.burst);
    shape.gangs[g].longest_s = seconds(usual.burst);
  }
  shape.known = true;
  return shape;
}

}  // namespace

JobShape shape_of(const JobProfile& job) {
  JobShape shape;
  shape.gangs.resize(job.gangs.size());
  if (job.gangs.empty()) return shape;
  const std::vector<Burst>& pacing = job.gangs[pacing_gang(job)].bursts;
  if (pacing.size() < 2) return usual_shape(job);
  Instant from = pacing.front().wanted;
  Instant to = pacing.back().wanted;
  if (to <= from) return shape;
  shape.rounds = static_cast<int>(pacing.size()) - 1;

  double waits = 0;
  for (std::size_t g = 0; g < job.gangs.size(); ++g) {
    GangShape& gang = shape.gangs[g];
    for (const Burst& burst : job.gangs[g].bursts) {
      if (burst.wanted < from || burst.wanted >= to) continue;
      gang.work_s += seconds(burst.work) / shape.rounds;
      gang.bursts += 1.0 / shape.rounds;
      gang.longest_s = std::max(gang.longest_s, seconds(burst.work));
    }
    waits += waited_s(job.gangs[g], from, to);
  }
  // A round is at least as long as its work; waits of overlapping gangs count once only.
  double busiest = 0;
  for (const GangShape& gang : shape.gangs) busiest = std::max(busiest, gang.work_s);
  shape.period_s = std::max(busiest, (seconds(to - from) - waits) / shape.rounds);

  double squares = 0;
  double mean = seconds(to - from) / shape.rounds;
  for (std::size_t i = 1; i < pacing.size(); ++i) {
    double round = seconds(pacing[i].wanted - pacing[i - 1].wanted);
    squares += (round - mean) * (round - mean) / shape.rounds;
  }
  shape.period_cv = mean > 0 ? std::sqrt(squares) / mean : 0;
  shape.known = shape.period_s > 0;
  return shape;
}

double lag_stable_rounds(const JobShape& a, const JobShape& b) {
  double difference = std::abs(a.period_s - b.period_s);
  double period = std::max(a.period_s, b.period_s);
  double by_drift = difference > 0 ? period / difference : kForEver;
  double cv = std::hypot(a.period_cv, b.period_cv);
  double by_jitter = cv > 0 ? (0.25 / cv) * (0.25 / cv) : kForEver;
  return std::min({by_drift, by_jitter, kForEver});
}

}  // namespace plexrl::clustermgr::placement
