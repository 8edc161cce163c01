#include <algorithm>
#include <map>

#include "clustermgr/placement/pack.h"
#include "tools/sim/config_lp.h"
#include "tools/sim/reproduce.h"
#include "tools/sim/rollmux_jobs.h"
#include "tools/sim/switch_costs.h"

namespace plexrl::sim {
namespace {

constexpr int kMostSharers = 5;
constexpr int kSmall = 16;
constexpr int kLarge = 2000;
/// Decisions at 2,000 jobs replay; so many seeds of it are enough work.
constexpr int kLargeSeeds = 3;
constexpr std::uint64_t kBudget = 20'000;

/// GPUs of a group that may share both slots, or one kind of slot only; possible when the replay
/// under the node policy keeps every member's bound.
class ReplayedCosts : public placement::GroupCosts {
 public:
  ReplayedCosts(placement::Predictor& predictor, const std::vector<placement::JobProfile>& jobs)
      : predictor_(predictor), jobs_(jobs) {}

  double cost(std::span<const int> members) override {
    std::vector<int> key(members.begin(), members.end());
    auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    const auto count = static_cast<int>(members.size());
    double cost = -1;
    if (count == 1) {
      cost = 16;
    } else if (keeps_bounds(members, true, true)) {
      cost = 16;
    } else if (keeps_bounds(members, false, true) || keeps_bounds(members, true, false)) {
      cost = 8 + 8 * count;
    }
    return known_[key] = cost;
  }

 private:
  bool keeps_bounds(std::span<const int> members, bool share_rollout, bool share_train) {
    placement::Group group;
    double loads[2] = {0, 0};
    int next = 2;
    for (int member : members) {
      const placement::JobProfile& job = jobs_[static_cast<std::size_t>(member)];
      const placement::JobShape& shape = predictor_.shape(job.id);
      for (std::size_t g = 0; g < 2; ++g) loads[g] += shape.duty(g) / job.max_slowdown;
      group.jobs.push_back(job.id);
      int rollout = share_rollout ? 0 : next++;
      int train = share_train ? 1 : next++;
      group.slots.push_back({rollout, train});
    }
    if (share_rollout && loads[0] > 1) return false;
    if (share_train && loads[1] > 1) return false;
    const placement::Prediction& prediction = predictor_.predict(group);
    for (std::size_t i = 0; i < members.size(); ++i) {
      double bound = jobs_[static_cast<std::size_t>(members[i])].max_slowdown;
      if (prediction.slowdown[i] > bound + 1e-9) return false;
    }
    return true;
  }

  placement::Predictor& predictor_;
  const std::vector<placement::JobProfile>& jobs_;
  std::map<std::vector<int>, double> known_;
};

std::vector<JobModel> draw_jobs(std::uint64_t seed, int count) {
  Random random(seed);
  std::vector<JobModel> jobs;
  for (int i = 0; i < count; ++i) jobs.push_back(rollmux_job(random));
  return jobs;
}

std::vector<placement::JobProfile> record(const std::vector<JobModel>& jobs, std::uint64_t seed) {
  std::vector<placement::JobProfile> profiles;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    profiles.push_back(recorded_alone(jobs[i], placement::JobId{i + 1}, derive(seed, i), 8));
  }
  return profiles;
}

/// Lower bounds on GPUs, whoever schedules: a job that keeps its bound works so much in that time.
struct Bounds {
  double volume = 0;
  double clique = 0;
  double config_lp = 0;
};
Bounds bounds_of(const std::vector<placement::JobProfile>& profiles) {
  Bounds bounds;
  for (std::size_t g = 0; g < 2; ++g) {
    std::vector<double> loads;
    for (const placement::JobProfile& job : profiles) {
      loads.push_back(std::min(1.0, placement::shape_of(job).duty(g) / job.max_slowdown));
    }
    bounds.volume += 8 * whole_slots(volume(loads));
    bounds.clique += 8 * conflict_clique(loads);
    bounds.config_lp += 8 * whole_slots(config_lp(loads, kMostSharers));
  }
  return bounds;
}

/// Jobs come one after the other and stay.
double gpus_of(Scheduler& scheduler, const Setup& setup,
               const std::vector<placement::JobProfile>& profiles,
               const std::vector<std::size_t>& order, const ReproduceOptions& options) {
  for (const placement::NodeInfo& node : setup.nodes) scheduler.nodes().add_node(node);
  std::size_t done = 0;
  for (std::size_t i : order) {
    if (!scheduler.place(profiles[i]).placed) return -1;
    if (++done % 100 == 0) options.say("2,000 jobs: " + std::to_string(done) + " placed");
  }
  return scheduler.nodes().open_gpus();
}

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  return order;
}

/// Least patient jobs with most work first.
std::vector<std::size_t> hardest_first(const std::vector<placement::JobProfile>& profiles) {
  std::vector<double> key;
  for (const placement::JobProfile& job : profiles) {
    placement::JobShape shape = placement::shape_of(job);
    key.push_back(std::max(shape.duty(0), shape.duty(1)) / job.max_slowdown);
  }
  std::vector<std::size_t> order = in_order(profiles.size());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return key[a] > key[b]; });
  return order;
}

Row over(const char* name, const std::vector<double>& percent, const char* against) {
  Row row = row_of(name, percent, "%");
  row.against = against;
  return row;
}

void small(const ReproduceOptions& options, Report& report) {
  std::vector<double> quick_over;
  std::vector<double> online_over;
  std::vector<double> rollmux_over;
  std::vector<double> optimum_over_lp;
  std::vector<double> isolated_over;
  for (int s = 0; s < options.seeds; ++s) {
    std::uint64_t seed = derive(options.first_seed + static_cast<std::uint64_t>(s), 16);
    Setup setup = rollmux_cluster(kSmall);
    placement::PlacerConfig config = placer_for(setup);
    config.max_sharers = kMostSharers;
    std::vector<placement::JobProfile> profiles = record(draw_jobs(seed, kSmall), seed);
    placement::Predictor predictor(config.predictor);
    for (const placement::JobProfile& job : profiles) predictor.learn(job);
    ReplayedCosts costs(predictor, profiles);
    placement::Packing best = placement::pack_exactly(kSmall, kMostSharers, costs);
    placement::Packing quick = placement::pack_quickly(kSmall, kMostSharers, costs, kBudget);
    report.events += predictor.replay_events();
    auto mine = ours(config);
    auto rollmux = baseline("round-robin", config, seed);
    double online = gpus_of(*mine, setup, profiles, in_order(kSmall), options);
    double theirs = gpus_of(*rollmux, setup, profiles, in_order(kSmall), options);
    quick_over.push_back(100 * (quick.cost / best.cost - 1));
    online_over.push_back(100 * (online / best.cost - 1));
    rollmux_over.push_back(100 * (theirs / best.cost - 1));
    optimum_over_lp.push_back(100 * (best.cost / bounds_of(profiles).config_lp - 1));
    isolated_over.push_back(16.0 * kSmall / best.cost);
    options.say("16 jobs: seed " + std::to_string(s + 1) + " of " + std::to_string(options.seeds));
  }
  Row row = over("16 jobs together: GPUs over the exact optimum", quick_over, "exact optimum");
  row.goal = 2;
  row.best_known = 6;
  row.bound = 0;
  row.bound_name =
      "the optimum itself: every split into groups of at most 5 that the replay allows";
  row.assumptions = {
      "a group shares both slots, or its rollout slot only, or its training slot only; possible if "
      "the replay under nodemgr/policy keeps every bound",
      "best known: RollMux's scheduler over its brute force, on its own trace"};
  report.rows.push_back(row);
  row = over("16 jobs one by one, placed for good: GPUs over the exact optimum", online_over,
             "exact optimum of all 16 together");
  row.assumptions = {
      "gangs of a job may have different neighbours, which the optimum above may "
      "not: below 0 is possible"};
  report.rows.push_back(row);
  report.rows.push_back(over("16 jobs one by one, round-robin groups: GPUs over the exact optimum",
                             rollmux_over, "exact optimum of all 16 together"));
  row = row_of("16 jobs: GPUs of Isolated over those of the exact optimum", isolated_over, "ratio");
  row.against = "exact optimum";
  row.higher_is_better = true;
  row.assumptions = {
      "what sharing can give at most with RollMux's bounds U(1,2) when groups are "
      "as above: reproduce rollmux asks for 2.0"};
  report.rows.push_back(row);
  report.rows.push_back(over("16 jobs: the exact optimum over the configuration LP",
                             optimum_over_lp, "configuration LP"));
}

void large(const ReproduceOptions& options, Report& report) {
  std::vector<double> over_lp;
  std::vector<double> rollmux_over_lp;
  std::vector<double> lp_over_volume;
  std::vector<double> isolated_over_lp;
  for (int s = 0; s < std::min(options.seeds, kLargeSeeds); ++s) {
    std::uint64_t seed = derive(options.first_seed + static_cast<std::uint64_t>(s), 2000);
    Setup setup = rollmux_cluster(kLarge);
    placement::PlacerConfig config = placer_for(setup);
    config.max_sharers = kMostSharers;
    std::vector<placement::JobProfile> profiles = record(draw_jobs(seed, kLarge), seed);
    Bounds bounds = bounds_of(profiles);
    double best = std::max({bounds.volume, bounds.clique, bounds.config_lp});
    auto mine = ours(config);
    auto rollmux = baseline("round-robin", config, seed);
    double gpus = gpus_of(*mine, setup, profiles, hardest_first(profiles), options);
    double theirs = gpus_of(*rollmux, setup, profiles, hardest_first(profiles), options);
    over_lp.push_back(100 * (gpus / best - 1));
    rollmux_over_lp.push_back(100 * (theirs / best - 1));
    isolated_over_lp.push_back(100 * (16.0 * kLarge / best - 1));
    lp_over_volume.push_back(100 * (bounds.config_lp / bounds.volume - 1));
  }
  Row row = over("2,000 jobs: GPUs over the configuration LP", over_lp, "configuration LP");
  row.goal = 4;
  row.bound = 0;
  row.bound_name = "the LP: loads of a slot sum up to 1 at most, each pool by itself";
  row.assumptions = {
      "the LP lets rollout and training slots be filled independently and switches cost nothing; "
      "no "
      "schedule of jobs whose phases wait for each other is known to reach it",
      "jobs placed hardest first, each for good; a replay under nodemgr/policy keeps every bound, "
      "switch costs charged"};
  report.rows.push_back(row);
  row = over("2,000 jobs, round-robin groups: GPUs over the configuration LP", rollmux_over_lp,
             "configuration LP");
  row.assumptions = {
      "by its own condition, without switch costs and not checked by a replay: the node policy "
      "serves "
      "who waits longest and does not make a patient job go in turn, so some of these groups would "
      "not keep their bounds"};
  report.rows.push_back(row);
  report.rows.push_back(over("2,000 jobs, isolated: GPUs over the configuration LP",
                             isolated_over_lp, "configuration LP"));
  report.rows.push_back(
      over("2,000 jobs: the configuration LP over the volume", lp_over_volume, "volume"));
}

}  // namespace

absl::StatusOr<Report> reproduce_optimality(const ReproduceOptions& options) {
  Report report;
  small(options, report);
  large(options, report);
  report.origins = {kRollmuxOrigin, our_moves_text(), phase_settings_text(),
                    "linear programs: Clp (COIN-OR) of Debian"};
  report.notes = {"at most 5 jobs in a slot, as in RollMux; phases of fixed length"};
  return report;
}

}  // namespace plexrl::sim
