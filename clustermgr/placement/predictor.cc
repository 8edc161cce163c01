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

bool are_alike(std::int64_t a, std::int64_t b) { return std::abs(a - b) <= std::max(a, b) / 4; }

/// The same bursts, and about as much memory.
bool are_alike(const std::vector<GangProfile>& a, const std::vector<GangProfile>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const GangProfile& one, const GangProfile& other) {
                      return are_alike(one.hbm_bytes, other.hbm_bytes) &&
                             are_alike(one.fixed_bytes, other.fixed_bytes) &&
                             one.usual == other.usual && one.bursts == other.bursts;
                    });
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
  known.version = version_of(known.profile);
  known.alone.clear();
  known.alone_until = Instant{0};
}

std::uint64_t Predictor::version_of(const JobProfile& profile) {
  if (!config_.remember_records) return ++versions_;
  constexpr std::size_t kMost = 256;
  for (const auto& [gangs, version] : seen_) {
    if (are_alike(gangs, profile.gangs)) return version;
  }
  if (seen_.size() >= kMost) seen_.pop_front();
  seen_.emplace_back(profile.gangs, ++versions_);
  return versions_;
}

void Predictor::set_machine(std::int64_t usable_hbm_bytes, const MoveModel& moves) {
  if (config_.usable_hbm_bytes == usable_hbm_bytes && config_.moves == moves) return;
  config_.usable_hbm_bytes = usable_hbm_bytes;
  config_.moves = moves;
  cache_.clear();
  for (auto& [id, known] : known_) known.alone_until = Instant{0};
}

void Predictor::forget(JobId job) { known_.erase(job); }

/// Members by id, or by their records, so that every order of the same group is one entry.
std::vector<std::size_t> Predictor::order_of(const Group& group) const {
  std::vector<std::size_t> order(group.jobs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const JobId one = group.jobs[a];
    const JobId other = group.jobs[b];
    if (!config_.remember_records) return one < other;
    return known_.at(one).version < known_.at(other).version;
  });
  return order;
}

std::string Predictor::key_of(const Group& group, const std::vector<std::size_t>& order) const {
  // Slots by first use.
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
  if (config_.remember_records) return key;
  // Slowdowns are kept in the order of the group that asked first: order is part of the answer.
  for (std::size_t i : order) key.push_back(static_cast<char>(i));
  return key;
}

std::optional<Prediction> Predictor::cached(const Group& group) const {
  const std::vector<std::size_t> order = order_of(group);
  const auto it = cache_.find(key_of(group, order));
  if (it == cache_.end()) return std::nullopt;
  if (!config_.remember_records) return it->second;
  Prediction prediction = it->second;
  for (std::size_t i = 0; i < order.size(); ++i) {
    prediction.slowdown[order[i]] = it->second.slowdown[i];
  }
  return prediction;
}

Prediction Predictor::predict(const Group& group) {
  if (std::optional<Prediction> known = cached(group)) return *std::move(known);
  const std::vector<std::size_t> order = order_of(group);
  Group asked = group;
  if (config_.remember_records) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      asked.jobs[i] = group.jobs[order[i]];
      asked.slots[i] = group.slots[order[i]];
    }
  }
  bool known = true;
  for (JobId job : group.jobs) known &= has_round(job);
  if (cache_.size() >= config_.most_predictions) cache_.clear();
  cache_.emplace(key_of(group, order), known ? replay(asked) : estimate(asked));
  return *cached(group);
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
