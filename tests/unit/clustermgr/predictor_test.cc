#include "clustermgr/placement/predictor.h"

#include <gtest/gtest.h>

#include "tests/unit/clustermgr/fake_jobs.h"

namespace plexrl::clustermgr::placement {
namespace {

using test::two_phases;

PredictorConfig roomy() {
  PredictorConfig config;
  config.usable_hbm_bytes = 80'000'000'000;
  config.policy.quantum_factor = 1e5;  // phases are not cut
  config.policy.max_wait = std::chrono::hours(1);
  return config;
}

Group sharing_both(std::vector<JobId> jobs) {
  Group group;
  group.jobs = std::move(jobs);
  group.slots.assign(group.jobs.size(), {0, 1});
  return group;
}

TEST(Predictor, JobAloneIsNotSlowedDown) {
  Predictor predictor(roomy());
  predictor.learn(two_phases(1, 60, 40));
  const Prediction& p = predictor.predict(sharing_both({JobId{1}}));
  EXPECT_TRUE(p.replayed);
  EXPECT_DOUBLE_EQ(p.slowdown[0], 1.0);
}

TEST(Predictor, BalancedPairInterlocks) {
  Predictor predictor(roomy());
  predictor.learn(two_phases(1, 50, 50));
  predictor.learn(two_phases(2, 50, 50));
  const Prediction& p = predictor.predict(sharing_both({JobId{1}, JobId{2}}));
  EXPECT_LT(p.slowdown[0], 1.02);
  EXPECT_LT(p.slowdown[1], 1.02);
}

TEST(Predictor, OverloadedPoolSlowsEveryMember) {
  Predictor predictor(roomy());
  for (std::uint64_t id = 1; id <= 3; ++id) predictor.learn(two_phases(id, 20, 80));
  const Prediction& p = predictor.predict(sharing_both({JobId{1}, JobId{2}, JobId{3}}));
  for (double slowdown : p.slowdown) EXPECT_NEAR(slowdown, 2.4, 0.1);
}

TEST(Predictor, PrivateRolloutsWithSharedTraining) {
  Predictor predictor(roomy());
  Group group;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    predictor.learn(two_phases(id, 80, 20));
    group.jobs.push_back(JobId{id});
    group.slots.push_back({static_cast<int>(id), 0});
  }
  for (double slowdown : predictor.predict(group).slowdown) EXPECT_LT(slowdown, 1.02);
}

/// Two jobs that interlock, of 50 GB each on 80, over a link of 5 GB/s: 10 s each way.
Prediction with_moves(double prefetch_share) {
  PredictorConfig config = roomy();
  config.policy.prefetch_share = prefetch_share;
  config.moves.out_bytes_per_s = config.moves.in_bytes_per_s = 5e9;
  Predictor predictor(config);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    JobProfile job = two_phases(id, 50, 50);
    for (GangProfile& gang : job.gangs) gang.hbm_bytes = 50'000'000'000;
    predictor.learn(job);
  }
  return predictor.predict(sharing_both({JobId{1}, JobId{2}}));
}

TEST(Predictor, SwitchCostIsCharged) {
  // For each hand-over, twice a step, and none of them hidden by a gap.
  const Prediction p = with_moves(0);
  EXPECT_GT(p.slowdown[0], 1.15);
  EXPECT_GT(p.switches_per_hour, 10);
}

TEST(Predictor, WhatComesBeforeItIsAskedForIsNotWaitedFor) {
  // 30 of the 50 GB have room beside the other job, and come while it runs.
  const Prediction p = with_moves(0.5);
  EXPECT_LT(p.slowdown[0] - 1, 0.8 * (with_moves(0).slowdown[0] - 1));
  EXPECT_GT(p.slowdown[0], 1.02) << "the rest has to wait";
}

TEST(Predictor, RemembersAGroupUntilAMemberChanges) {
  Predictor predictor(roomy());
  predictor.learn(two_phases(1, 50, 50));
  predictor.learn(two_phases(2, 50, 50));
  Group group = sharing_both({JobId{1}, JobId{2}});
  EXPECT_FALSE(predictor.cached(group));
  predictor.predict(group);
  const std::uint64_t replays = predictor.replays();
  EXPECT_GT(replays, 0u);
  predictor.predict(group);
  EXPECT_EQ(predictor.replays(), replays);
  EXPECT_TRUE(predictor.cached(group));
  predictor.learn(two_phases(2, 20, 80));
  EXPECT_FALSE(predictor.cached(group));
  predictor.predict(group);
  EXPECT_GT(predictor.replays(), replays);
}

TEST(Predictor, WithoutHistoryItEstimatesCautiously) {
  Predictor predictor(roomy());
  predictor.learn(two_phases(1, 50, 50));
  JobProfile fresh = two_phases(2, 50, 50, 0, 1);
  predictor.learn(fresh);
  const Prediction& p = predictor.predict(sharing_both({JobId{1}, JobId{2}}));
  EXPECT_FALSE(p.replayed);
  EXPECT_GE(p.slowdown[1], 2);
}

TEST(Predictor, EstimateAgreesWithReplayWherePeriodsAreAlike) {
  Predictor predictor(roomy());
  for (std::uint64_t id = 1; id <= 3; ++id) predictor.learn(two_phases(id, 70, 40));
  for (std::uint64_t members = 1; members <= 3; ++members) {
    std::vector<JobId> jobs;
    for (std::uint64_t id = 1; id <= members; ++id) jobs.push_back(JobId{id});
    Group group = sharing_both(jobs);
    EXPECT_NEAR(predictor.estimate(group).slowdown[0], predictor.predict(group).slowdown[0], 0.05);
  }
}

TEST(Predictor, JobsWithTheSameRecordsAreTheSameWhateverTheirIdsAndOrder) {
  PredictorConfig config = roomy();
  config.remember_records = true;
  Predictor predictor(config);
  JobProfile one = two_phases(1, 50, 50);
  one.gangs[0].hbm_bytes = 1'000'000'000;
  predictor.learn(one);
  predictor.learn(two_phases(2, 60, 20));
  const Prediction first = predictor.predict(sharing_both({JobId{1}, JobId{2}}));
  predictor.forget(JobId{1});
  predictor.forget(JobId{2});
  predictor.learn(two_phases(8, 60, 20));
  JobProfile again = two_phases(9, 50, 50);
  again.gangs[0].hbm_bytes = 1'100'000'000;
  predictor.learn(again);
  const auto known = predictor.cached(sharing_both({JobId{8}, JobId{9}}));
  ASSERT_TRUE(known);
  EXPECT_EQ(known->slowdown[0], first.slowdown[1]);
  EXPECT_EQ(known->slowdown[1], first.slowdown[0]);
}

}  // namespace
}  // namespace plexrl::clustermgr::placement
