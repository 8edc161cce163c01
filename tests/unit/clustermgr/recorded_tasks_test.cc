#include "clustermgr/placement/recorded_tasks.h"

#include <gtest/gtest.h>

#include "tests/unit/clustermgr/fake_jobs.h"

namespace plexrl::clustermgr::placement {
namespace {

RecordedRound round_of(const JobProfile& job) {
  return RecordedRound({&job.gangs[0].bursts, &job.gangs[1].bursts});
}

bool comes_after(const Task& task, int back) {
  for (const Task::After& after : task.after) {
    if (after.back == back) return true;
  }
  return false;
}

TEST(RecordedRound, PhasesOneAfterTheOtherWaitForEachOther) {
  JobProfile job = test::two_phases(1, 60, 40, 0, 5);
  RecordedRound round = round_of(job);
  ASSERT_EQ(round.tasks().size(), 6u);
  for (const Task& task : round.tasks()) EXPECT_TRUE(comes_after(task, 1));
  EXPECT_EQ(round.length(), from_seconds(300));
}

TEST(RecordedRound, OverlappedTrainingIsNotWaitedForByTheNextRollout) {
  // One step of lag: rollout n+1 runs while step n trains.
  JobProfile job = test::two_phases(1, 60, 40, 0, 6);
  for (int i = 0; i < 6; ++i) {
    Instant begin = from_seconds(60.0 * i);
    job.gangs[0].bursts[i] = {begin, begin + from_seconds(60), from_seconds(60)};
    job.gangs[1].bursts[i] = {begin + from_seconds(60), begin + from_seconds(100),
                              from_seconds(40)};
  }
  RecordedRound round = round_of(job);
  int rollouts = 0;
  for (std::size_t i = 0; i < round.tasks().size(); ++i) {
    const Task& task = round.tasks()[i];
    if (task.gang != 0) continue;
    ++rollouts;
    // In order: rollout n+1, training n, rollout n+2, …: the rollout before is 2 back, training of
    // the step before the last is 3 back or 1.
    EXPECT_TRUE(comes_after(task, 2));
  }
  EXPECT_GT(rollouts, 2);
}

TEST(RecordedRound, TooLittleIsEmpty) {
  EXPECT_TRUE(round_of(test::two_phases(1, 60, 40, 0, 1)).empty());
  JobProfile job = test::two_phases(1, 60, 40);
  job.gangs[1].bursts.clear();
  EXPECT_TRUE(round_of(job).empty());
}

}  // namespace
}  // namespace plexrl::clustermgr::placement
