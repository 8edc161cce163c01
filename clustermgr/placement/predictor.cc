#include "clustermgr/placement/predictor.h"

#include <algorithm>
#include <cmath>

#include "clustermgr/placement/virtual_cluster.h"

namespace plexrl::clustermgr::placement {
namespace {

/// What is said of a member that hardly gets a turn.
constexpr double kStarved = 100;

int slot_count(const Group& group) {
  int count = 0;
  for (const std::vector<int>& slots : group.slots) {
    for (int slot : slots) count = std::max(count, slot + 1);
  }
  return count;
}

/// All GPUs of a slot are in step: one stands for them.
VirtualNode new_slot(const PredictorConfig& config, std::size_t number) {
  return VirtualNode(config.policy, config.moves, {config.usable_hbm_bytes}, config.seed + number);
}

std::vector<GangPlace> places_of(const JobProfile& job, const std::vector<int>& slots) {
  std::vector<GangPlace> places;
  for (std::size_t g = 0; g < job.gangs.size(); ++g) {
    const GangProfile& gang = job.gangs[g];
    places.push_back({slots[g], {job.name, 1, gang.hbm_bytes, gang.fixed_bytes}});
  }
  return places;
}

/// Time that the same steps took together and alone, over those that ended in [from, to].
double slowdown(const std::vector<Instant>& together, const std::vector<Instant>& alone,
                Instant from, Instant to) {
  std::size_t first = std::lower_bound(together.begin(), together.end(), from) - together.begin();
  std::size_t last = std::min(together.size(), alone.size());
  if (last < first + 2) {
    std::size_t done = std::min(together.size(), alone.size());
    if (done == 0) return kStarved;
    return std::min(kStarved, seconds(to) / seconds(alone[done - 1]));
  }
  --last;
  double alone_s = seconds(alone[last] - alone[first]);
  return alone_s > 0 ? std::max(1.0, seconds(together[last] - together[first]) / alone_s) : 1.0;
}

}  // namespace

void Predictor::learn(JobProfile profile) {
  Known& known = known_[profile.id];
  if (known.version != 0 && known.profile == profile) return;
  known.profile = std::move(profile);
  known.shape = shape_of(known.profile);
  std::vector<const std::vector<Burst>*> bursts;
  for (const GangProfile& gang : known.profile.gangs) bursts.push_back(&gang.bursts);
  known.round = std::make_unique<RecordedRound>(bursts);
  known.version = ++versions_;
  known.alone.clear();
  known.alone_until = Instant{0};
}

void Predictor::set_machine(std::int64_t usable_hbm_bytes, const MoveModel& moves) {
  if (config_.usable_hbm_bytes == usable_hbm_bytes && config_.moves == moves) return;
  config_.usable_hbm_bytes = usable_hbm_bytes;
  config_.moves = moves;
  cache_.clear();
  for (auto& [id, known] : known_) known.alone_until = Instant{0};
}

void Predictor::forget(JobId job) { known_.erase(job); }

std::string Predictor::key_of(const Group& group) const {
  // Members by id, so that every order of the same group is one entry; slots by first use.
  std::vector<std::size_t> order(group.jobs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return group.jobs[a] < group.jobs[b]; });
  std::vector<int> renamed(static_cast<std::size_t>(slot_count(group)), -1);
  int used = 0;
  std::string key;
  auto add = [&](std::uint64_t value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (std::size_t i : order) {
    add(known_.at(group.jobs[i]).version);
    for (int slot : group.slots[i]) {
      if (renamed[slot] < 0) renamed[slot] = used++;
      key.push_back(static_cast<char>(renamed[slot]));
    }
  }
  // Slowdowns are kept in the order of the group that asked first: order is part of the answer.
  for (std::size_t i : order) key.push_back(static_cast<char>(i));
  return key;
}

const Prediction* Predictor::cached(const Group& group) const {
  auto it = cache_.find(key_of(group));
  return it == cache_.end() ? nullptr : &it->second;
}

const Prediction& Predictor::predict(const Group& group) {
  std::string key = key_of(group);
  auto it = cache_.find(key);
  if (it != cache_.end()) return it->second;
  bool known = true;
  for (JobId job : group.jobs) known &= !known_.at(job).round->empty();
  Prediction prediction = known ? replay(group) : estimate(group);
  return cache_.emplace(std::move(key), std::move(prediction)).first->second;
}

const std::vector<Instant>& Predictor::alone(JobId job, Instant until) {
  Known& known = known_.at(job);
  if (known.alone_until >= until) return known.alone;
  VirtualCluster cluster;
  std::vector<int> slots(known.profile.gangs.size());
  for (int& slot : slots) slot = cluster.add_node(new_slot(config_, cluster.node_count()));
  int index = cluster.add_job(places_of(known.profile, slots),
                              std::make_unique<RepeatedRound>(*known.round), Instant{0});
  cluster.run_until(until);
  known.alone_until = until;
  return known.alone = cluster.job(index).step_ends;
}

Prediction Predictor::replay(const Group& group) {
  Prediction worst;
  worst.replayed = true;
  worst.slowdown.assign(group.jobs.size(), 1.0);
  // A job alone has nobody to start relative to.
  const int starts = group.jobs.size() > 1 ? config_.starts : 1;
  for (int start = 0; start < starts; ++start) replay_from(group, start, worst);
  return worst;
}

/// Closed loops settle into different patterns from different starts.
void Predictor::replay_from(const Group& group, int start, Prediction& worst) {
  VirtualCluster cluster;
  for (int slot = slot_count(group); slot > 0; --slot) {
    cluster.add_node(new_slot(config_, cluster.node_count()));
  }
  const std::size_t count = group.jobs.size();
  double longest = 0;
  for (JobId job : group.jobs) longest = std::max(longest, known_.at(job).shape.period_s);
  for (std::size_t i = 0; i < count; ++i) {
    const Known& known = known_.at(group.jobs[i]);
    // Evenly over the longest step; then by the golden ratio, which repeats no pattern.
    double turn = static_cast<double>(i) / static_cast<double>(count);
    if (start > 0) turn = std::fmod(0.618034 * static_cast<double>(i) * (start + 1), 1.0);
    cluster.add_job(places_of(known.profile, group.slots[i]),
                    std::make_unique<RepeatedRound>(*known.round), from_seconds(longest * turn));
  }
  const double measured = longest * config_.steps;
  const Instant settled = from_seconds(measured / 3);
  const Instant until = settled + from_seconds(measured);
  cluster.run_until(until);

  std::uint64_t grants = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<Instant>& together = cluster.job(static_cast<int>(i)).step_ends;
    double one = slowdown(together, alone(group.jobs[i], until), settled, until);
    worst.slowdown[i] = std::max(worst.slowdown[i], one);
    for (std::size_t g = 0; g < group.slots[i].size(); ++g) {
      grants += cluster.gang_totals(static_cast<int>(i), static_cast<int>(g)).grants;
    }
  }
  worst.switches_per_hour =
      std::max(worst.switches_per_hour, static_cast<double>(grants) / seconds(until) * 3600);
  ++replays_;
  replay_events_ += cluster.events();
}

}  // namespace plexrl::clustermgr::placement
