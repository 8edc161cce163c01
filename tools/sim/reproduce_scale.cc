#include <algorithm>
#include <chrono>

#include "clustermgr/placement/pack.h"
#include "tools/sim/reproduce.h"
#include "tools/sim/rollmux_jobs.h"
#include "tools/sim/switch_costs.h"

namespace plexrl::sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDecisions = 200;

double since_ms(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// A job of 1 or 2 GPUs for each phase that is patient enough for several to share a GPU, so that
/// 2,000 of them fit on 2,048 GPUs.
JobModel small_job(Random& random) {
  JobModel job = rollmux_job(random);
  int gpus = 1 << random.below(2);
  for (GangModel& gang : job.gangs) {
    gang.gpus = gpus;
    gang.hbm_bytes = 20'000'000'000;
  }
  job.max_slowdown = random.uniform(5, 8);
  return job;
}

struct Times {
  std::vector<double> ms;
  int placed = 0;
  int gpus = 0;

  double quantile(double q) const {
    std::vector<double> sorted = ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
  }
};

/// Fills a cluster, then times decisions: a job comes, is placed, and leaves.
Times time_decisions(int jobs, int nodes, int replays, std::uint64_t seed,
                     const ReproduceOptions& options) {
  Setup setup = rollmux_cluster(nodes / 2);
  placement::PlacerConfig config = placer_for(setup);
  config.max_sharers = 5;
  placement::Placer placer(config);
  placer.set_replays(0);  // what fills the cluster need not be predicted well
  for (const placement::NodeInfo& node : setup.nodes) placer.nodes().add_node(node);
  Random random(seed);
  Times times;
  std::uint64_t id = 1;
  for (int i = 0; i < jobs; ++i) {
    auto profile = recorded_alone(small_job(random), placement::JobId{id}, derive(seed, id), 8);
    ++id;
    times.placed += placer.place(profile).placed ? 1 : 0;
    if (i % 500 == 0) options.say("filling: " + std::to_string(i) + " of " + std::to_string(jobs));
  }
  times.gpus = placer.nodes().open_gpus();
  placer.set_replays(replays);
  for (int i = 0; i < kDecisions; ++i) {
    placement::JobId job{id++};
    auto profile = recorded_alone(small_job(random), job, derive(seed, id), 8);
    auto begin = Clock::now();
    placer.place(profile);
    times.ms.push_back(since_ms(begin));
    placer.remove(job);
  }
  return times;
}

class RoundRobinCosts : public placement::GroupCosts {
 public:
  explicit RoundRobinCosts(const std::vector<JobModel>& jobs) : jobs_(jobs) {}
  /// RollMux's condition: one round takes the longest member alone, or one pool's phases in turn.
  double cost(std::span<const int> members) override {
    double round = 0;
    double rollout = 0;
    double train = 0;
    double least = 1e18;
    for (int member : members) {
      const JobModel& job = jobs_[static_cast<std::size_t>(member)];
      double r = job.stages[0].time.mean_s;
      double t = job.stages[1].time.mean_s;
      rollout += r;
      train += t;
      round = std::max(round, r + t);
      least = std::min(least, job.max_slowdown * (r + t));
    }
    return std::max({round, rollout, train}) <= least ? 16 : -1;
  }

 private:
  const std::vector<JobModel>& jobs_;
};

}  // namespace

absl::StatusOr<Report> reproduce_scale(const ReproduceOptions& options) {
  Report report;
  std::uint64_t seed = derive(options.first_seed, 77);
  Times remembered = time_decisions(2000, 256, 0, seed, options);
  Times replaying = time_decisions(2000, 256, 12, seed, options);
  Times larger = time_decisions(20000, 2560, 0, seed, options);
  auto add = [&](std::string name, double value, const char* unit) -> Row& {
    Row row;
    row.name = std::move(name);
    row.value = value;
    row.unit = unit;
    row.rounds = kDecisions;
    report.rows.push_back(row);
    return report.rows.back();
  };
  Row& p99 = add("decision at 2,000 jobs on 2,048 GPUs, p99", remembered.quantile(0.99), "ms");
  p99.goal = 50;
  p99.best_known = 591;
  p99.assumptions = {
      "predictions remembered or estimated, replays off the decision path, as the service does it",
      std::to_string(remembered.placed) + " jobs were placed, on " +
          std::to_string(remembered.gpus) + " GPUs"};
  add("decision at 2,000 jobs, median", remembered.quantile(0.5), "ms");
  Row& inline_row = add("decision at 2,000 jobs with up to 12 replays inside, p99",
                        replaying.quantile(0.99), "ms");
  inline_row.goal = 50;
  add("decision at 20,000 jobs on 20,480 GPUs, p99", larger.quantile(0.99), "ms").assumptions = {
      std::to_string(larger.placed) + " jobs were placed, on " + std::to_string(larger.gpus) +
      " GPUs"};
  Row& growth = add("growth of the median from 2,000 to 20,000 jobs",
                    larger.quantile(0.5) / remembered.quantile(0.5), "ratio");
  growth.goal = 12;
  growth.assumptions = {"near linear: 10 times the jobs and GPUs, at most 12 times the time"};

  std::vector<double> exact_s;
  for (int s = 0; s < options.seeds; ++s) {
    Random random(derive(options.first_seed + static_cast<std::uint64_t>(s), 16));
    std::vector<JobModel> jobs;
    for (int i = 0; i < placement::kMostExact; ++i) {
      jobs.push_back(rollmux_job(random));
      jobs.back().max_slowdown += 1.5;  // patient, so that groups are many
    }
    RoundRobinCosts costs(jobs);
    auto begin = Clock::now();
    placement::pack_exactly(placement::kMostExact, 5, costs);
    exact_s.push_back(since_ms(begin) / 1e3);
  }
  Row exact = row_of("exact solution at 16 jobs", exact_s, "s");
  exact.goal = 1;
  exact.best_known = 5 * 3600;
  exact.assumptions = {
      "bounds 1.5 above RollMux's, so that many groups are possible; costs by "
      "RollMux's round condition, replays not counted",
      "best known: brute force, more than 5 h at 13 jobs"};
  report.rows.push_back(exact);
  report.origins = {kRollmuxOrigin, "times: this machine's clock, wall time"};
  report.notes = {
      "jobs of 1 or 2 GPUs a phase, 20 GB a GPU, bounds U(5,8), so that 2,000 of "
      "them fit on 2,048 GPUs; 200 decisions timed, after each the job leaves again"};
  return report;
}

}  // namespace plexrl::sim
