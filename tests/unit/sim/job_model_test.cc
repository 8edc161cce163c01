#include "tools/sim/job_model.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace plexrl::sim {
namespace {

JobModel two_phases(double rollout_s, double train_s, int lag) {
  JobModel job;
  job.steps = 10;
  job.lag = lag;
  job.gangs = {{"rollout", "gpu", 8}, {"train", "gpu", 8}};
  job.stages = {{"rollout", {0}, TimeModel::fixed(rollout_s), 1, {}},
                {"train", {1}, TimeModel::fixed(train_s), 1, {}}};
  return job;
}

TEST(JobModel, WithoutLagPhasesFollowEachOther) {
  std::vector<Instant> ends = step_ends_alone(two_phases(60, 40, 0), 1, 10);
  ASSERT_EQ(ends.size(), 10u);
  EXPECT_NEAR(seconds(ends.back()), 1000, 0.01);
}

TEST(JobModel, WithOneStepOfLagTheLongerPhaseSetsThePace) {
  std::vector<Instant> ends = step_ends_alone(two_phases(60, 40, 1), 1, 10);
  EXPECT_NEAR(seconds(ends.back()), 10 * 60 + 40, 0.01);
  ends = step_ends_alone(two_phases(40, 60, 1), 1, 10);
  EXPECT_NEAR(seconds(ends.back()), 40 + 10 * 60, 0.01);
}

TEST(JobModel, GangsSideBySideEndWithTheLast) {
  JobModel job = two_phases(10, 5, 0);
  job.gangs.push_back({"rollout2", "gpu", 8});
  job.stages[0].gangs = {0, 2};
  job.stages[0].time = TimeModel::uniform(10, 20);
  std::vector<Instant> one = step_ends_alone(two_phases(10, 5, 0), 3, 10);
  std::vector<Instant> both = step_ends_alone(job, 3, 10);
  EXPECT_GT(both.back(), one.back());
  EXPECT_LT(seconds(both.back()), 250.1);
}

TEST(JobModel, GapsBetweenBurstsLengthenAStep) {
  JobModel job = two_phases(10, 5, 0);
  job.stages[0].bursts = 4;
  job.stages[0].gap = TimeModel::fixed(2);
  EXPECT_NEAR(seconds(step_ends_alone(job, 1, 10).back()), 10 * (4 * 10 + 3 * 2 + 5), 0.01);
}

TEST(JobModel, RecordHasEveryBurstAndNoWaits) {
  auto profile = recorded_alone(two_phases(60, 40, 0), clustermgr::placement::JobId{5}, 1, 6);
  ASSERT_EQ(profile.gangs.size(), 2u);
  ASSERT_EQ(profile.gangs[0].bursts.size(), 6u);
  for (const clustermgr::placement::Burst& burst : profile.gangs[1].bursts) {
    EXPECT_EQ(burst.ended - burst.wanted, burst.work);
  }
}

TEST(JobModel, ImpossibleOnesAreNamed) {
  JobModel job = two_phases(1, 1, 0);
  EXPECT_EQ(problem_of(job), "");
  job.stages[0].gangs = {7};
  EXPECT_NE(problem_of(job), "");
  job = two_phases(1, 1, 15);
  job.stages[0].bursts = 10;
  EXPECT_NE(problem_of(job), "");
}

TEST(TimeModel, LongestOfManyIsAtTheCapWhenTheMixtureReachesIt) {
  TimeModel model;
  model.kind = TimeModel::Kind::kLongest;
  model.mixture = {{0.85, 6000, 2000}, {0.15, 16000, 3000}};
  model.samples = 640;
  model.cap_tokens = 16384;
  model.tokens_per_s = 100;
  Random random(1);
  for (int step = 0; step < 20; ++step) EXPECT_DOUBLE_EQ(model.draw(random, step), 163.84);
}

TEST(TimeModel, LognormalHasItsMeanAndVariation) {
  Random random(2);
  TimeModel model = TimeModel::lognormal(100, 0.2);
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    double value = model.draw(random, 0);
    sum += value;
    squares += value * value;
  }
  double mean = sum / kDraws;
  EXPECT_NEAR(mean, 100, 1);
  EXPECT_NEAR(std::sqrt(squares / kDraws - mean * mean) / mean, 0.2, 0.01);
}

TEST(TimeModel, DriftGrowsUpToItsLimit) {
  Random random(1);
  TimeModel model = TimeModel::fixed(10);
  model.drift_per_step = 0.1;
  model.drift_limit = 2;
  EXPECT_DOUBLE_EQ(model.draw(random, 5), 15);
  EXPECT_DOUBLE_EQ(model.draw(random, 500), 20);
}

}  // namespace
}  // namespace plexrl::sim
