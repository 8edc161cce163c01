#include <algorithm>
#include <cmath>

#include "clustermgr/placement/predictor.h"

namespace plexrl::clustermgr::placement {
namespace {

/// Jobs whose lag holds for so many rounds settle into a pattern; others meet at random.
constexpr double kSettles = 20;
/// Periods this close are taken once a round each.
constexpr double kAlike = 1.25;

struct Sharer {
  std::size_t member = 0;
  const JobShape* job = nullptr;
  const GangShape* gang = nullptr;
  double swap_s = 0;

  double occupied_s() const { return gang->work_s + gang->bursts * swap_s; }
  double load() const { return job->period_s > 0 ? occupied_s() / job->period_s : 1; }
};

/// Time per round that `one` waits for the others because they meet at random: the chance that
/// another is busy, times half of its burst.
double chance_wait_s(const Sharer& one, const std::vector<Sharer>& sharers) {
  double wait = 0;
  for (const Sharer& other : sharers) {
    if (other.member == one.member) continue;
    if (lag_stable_rounds(*one.job, *other.job) >= kSettles) continue;
    double burst = other.gang->bursts > 0 ? other.occupied_s() / other.gang->bursts : 0;
    wait += one.gang->bursts * std::min(1.0, other.load()) * burst / 2;
  }
  return wait;
}

}  // namespace

double swap_s(const PredictorConfig& config, const std::vector<const GangProfile*>& sharers,
              const GangProfile& gang) {
  double all = 0;
  for (const GangProfile* one : sharers) {
    all += static_cast<double>(one->hbm_bytes + one->fixed_bytes);
  }
  if (all <= static_cast<double>(config.usable_hbm_bytes)) return seconds(config.moves.drain);
  auto bytes = static_cast<double>(gang.hbm_bytes);
  const double out = seconds(config.moves.out_fixed) + bytes / config.moves.out_bytes_per_s;
  const double in = seconds(config.moves.in_fixed) + bytes / config.moves.in_bytes_per_s;
  return seconds(config.moves.drain) + (config.moves.at_once ? std::max(out, in) : out + in);
}

Prediction Predictor::estimate(const Group& group, bool with_waits) const {
  Prediction prediction;
  prediction.slowdown.assign(group.jobs.size(), 1.0);
  std::map<int, std::vector<Sharer>> slots;
  std::map<int, std::vector<const GangProfile*>> gangs;
  for (std::size_t i = 0; i < group.jobs.size(); ++i) {
    const Known& known = known_.at(group.jobs[i]);
    for (std::size_t g = 0; g < group.slots[i].size(); ++g) {
      gangs[group.slots[i][g]].push_back(&known.profile.gangs[g]);
      slots[group.slots[i][g]].push_back({i, &known.shape, &known.shape.gangs[g], 0});
    }
  }
  std::vector<double> waits(group.jobs.size(), 0.0);
  for (auto& [slot, sharers] : slots) {
    if (sharers.size() < 2) continue;
    double load = 0;
    double once_each_s = 0;
    double shortest = sharers.front().job->period_s;
    double longest = 0;
    for (std::size_t i = 0; i < sharers.size(); ++i) {
      sharers[i].swap_s = swap_s(config_, gangs[slot], *gangs[slot][i]);
      load += sharers[i].load();
      once_each_s += sharers[i].occupied_s();
      shortest = std::min(shortest, sharers[i].job->period_s);
      longest = std::max(longest, sharers[i].job->period_s);
    }
    for (const Sharer& sharer : sharers) {
      double& slowdown = prediction.slowdown[sharer.member];
      // Nothing is known of it: as if it never let go.
      if (!sharer.job->known) {
        slowdown = std::max(slowdown, static_cast<double>(sharers.size()));
        continue;
      }
      bool alike = with_waits && longest <= shortest * kAlike;
      double turn = alike ? once_each_s / sharer.job->period_s : load;
      slowdown = std::max(slowdown, turn);
      if (with_waits) waits[sharer.member] += chance_wait_s(sharer, sharers);
    }
  }
  for (std::size_t i = 0; i < group.jobs.size(); ++i) {
    const JobShape& job = known_.at(group.jobs[i]).shape;
    if (!job.known) continue;
    prediction.slowdown[i] = std::max(prediction.slowdown[i], 1 + waits[i] / job.period_s);
  }
  return prediction;
}

}  // namespace plexrl::clustermgr::placement
