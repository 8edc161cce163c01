#include "tools/sim/simulation.h"

#include <gtest/gtest.h>

#include "tools/sim/switch_costs.h"

namespace plexrl::sim {
namespace {

JobModel job(double rollout_s, double train_s, double arrival_s, double bound = 1.3) {
  JobModel model;
  model.name = "job";
  model.arrival_s = arrival_s;
  model.steps = 30;
  model.max_slowdown = bound;
  model.gangs = {{"rollout", "rollout", 8, 30'000'000'000}, {"train", "train", 8, 30'000'000'000}};
  model.stages = {{"rollout", {0}, TimeModel::lognormal(rollout_s, 0.1), 1, {}},
                  {"train", {1}, TimeModel::fixed(train_s), 1, {}}};
  return model;
}

Setup cluster(int nodes_a_pool) {
  Setup setup;
  setup.policy = phase_settings();
  setup.moves = our_moves();
  std::uint32_t next = 1;
  for (const char* pool : {"rollout", "train"}) {
    for (int i = 0; i < nodes_a_pool; ++i) {
      placement::NodeInfo node;
      node.id = placement::NodeId{next++};
      node.pool = pool;
      node.tier_bytes = 2'000'000'000'000;
      setup.nodes.push_back(node);
    }
  }
  return setup;
}

placement::PlacerConfig placer(const Setup& setup) {
  placement::PlacerConfig config;
  config.predictor.policy = setup.policy;
  config.predictor.moves = setup.moves;
  config.predictor.usable_hbm_bytes = setup.usable_hbm_bytes;
  return config;
}

TEST(Simulation, InterlockingJobsShareAndKeepTheirBounds) {
  auto setup = cluster(8);
  std::vector<JobModel> jobs;
  for (int i = 0; i < 6; ++i) jobs.push_back(job(100, 90, 30.0 * i));
  auto mine = ours(placer(setup));
  Result shared = simulate(setup, jobs, *mine);
  auto alone = baseline("isolated", placer(setup), 1);
  Result isolated = simulate(setup, jobs, *alone);
  EXPECT_LT(shared.gpu_s, 0.65 * isolated.gpu_s);
  EXPECT_EQ(shared.bound_met(), 1.0);
  EXPECT_NEAR(isolated.mean_slowdown(), 1.0, 0.01);
  EXPECT_NEAR(shared.worked_gpu_s, isolated.worked_gpu_s, 1);
  EXPECT_GE(shared.gpu_s, shared.worked_gpu_s);
}

TEST(Simulation, SameSeedSameResult) {
  auto setup = cluster(8);
  std::vector<JobModel> jobs;
  for (int i = 0; i < 6; ++i) jobs.push_back(job(80 + 10 * i, 60, 100.0 * i));
  auto run = [&] {
    auto scheduler = ours(placer(setup));
    Result result = simulate(setup, jobs, *scheduler);
    return std::tuple(result.events, result.gpu_s, result.end_s);
  };
  EXPECT_EQ(run(), run());
}

TEST(Simulation, WithoutRoomJobsQueueAndThenRun) {
  auto setup = cluster(1);
  std::vector<JobModel> jobs(3, job(100, 100, 0));
  auto scheduler = baseline("isolated", placer(setup), 1);
  Result result = simulate(setup, jobs, *scheduler);
  for (const JobResult& one : result.jobs) EXPECT_TRUE(one.finished);
  EXPECT_GT(result.mean_queueing_s(), 3000);
}

TEST(Simulation, JobThatFitsNowhereIsReportedNotDropped) {
  auto setup = cluster(1);
  JobModel big = job(100, 100, 0);
  big.gangs[0].gpus = 64;
  auto scheduler = ours(placer(setup));
  Result result = simulate(setup, {big, job(100, 100, 0)}, *scheduler);
  EXPECT_FALSE(result.jobs[0].finished);
  EXPECT_FALSE(result.jobs[0].reason.empty());
  EXPECT_TRUE(result.jobs[1].finished);
}

TEST(Simulation, NewJobsAreProfiledOnTheirOwnFirst) {
  auto setup = cluster(8);
  setup.history_steps = 0;
  std::vector<JobModel> jobs = {job(100, 100, 0), job(100, 100, 10), job(100, 100, 4000)};
  auto scheduler = ours(placer(setup));
  Result result = simulate(setup, jobs, *scheduler);
  EXPECT_EQ(result.jobs[0].reason, "no history: profiled on its own");
  EXPECT_EQ(result.jobs[1].reason, "no history: profiled on its own");
}

TEST(Simulation, EveryBaselineRunsEveryJob) {
  auto setup = cluster(12);
  std::vector<JobModel> jobs;
  for (int i = 0; i < 8; ++i) jobs.push_back(job(60 + 10 * i, 50, 100.0 * i, 1.6));
  for (const std::string& name : baseline_names()) {
    auto scheduler = baseline(name, placer(setup), 5);
    Result result = simulate(setup, jobs, *scheduler);
    for (const JobResult& one : result.jobs) EXPECT_TRUE(one.finished) << name;
    EXPECT_FALSE(baseline_source(name).empty());
  }
  EXPECT_EQ(baseline("best", placer(setup), 1), nullptr);
}

}  // namespace
}  // namespace plexrl::sim
