#include "clustermgr/placement/correlation.h"

#include <gtest/gtest.h>

#include "clustermgr/placement/profile.h"
#include "tests/unit/clustermgr/fake_jobs.h"

namespace plexrl::clustermgr::placement {
namespace {

using test::two_phases;

TEST(Correlation, TwoHalfBusyGangsFitWithoutOverlap) {
  JobProfile a = two_phases(1, 50, 50);
  JobProfile b = two_phases(2, 50, 50);
  Correlation c = correlate(a.gangs[1].bursts, b.gangs[1].bursts, from_seconds(1));
  EXPECT_NEAR(c.duty_a, 0.5, 0.01);
  EXPECT_NEAR(c.best_overlap, 0, 0.01);
  EXPECT_NEAR(c.best_lag_s, 50, 1);
  EXPECT_NEAR(c.phi_at_best, -1, 0.05);
  EXPECT_NEAR(c.mean_overlap, 0.25, 0.01);
}

TEST(Correlation, BusierThanTheirGapsOverlapAtEveryLag) {
  JobProfile a = two_phases(1, 20, 80);
  JobProfile b = two_phases(2, 30, 70);
  Correlation c = correlate(a.gangs[1].bursts, b.gangs[1].bursts, from_seconds(1));
  EXPECT_GE(c.best_overlap, 0.49);
}

TEST(Correlation, NothingRecordedGivesNothing) {
  Correlation c = correlate({}, {}, from_seconds(1));
  EXPECT_EQ(c.best_overlap, 0);
}

TEST(Profile, ShapeIsPeriodDutyAndVariation) {
  JobShape shape = shape_of(two_phases(1, 60, 40, 0.2, 11));
  ASSERT_TRUE(shape.known);
  EXPECT_NEAR(shape.period_s, 100, 0.1);
  EXPECT_NEAR(shape.duty(0), 0.6, 0.01);
  EXPECT_NEAR(shape.duty(1), 0.4, 0.01);
  EXPECT_NEAR(shape.period_cv, 0.12, 0.01);
}

TEST(Profile, TimeWaitedForLeasesIsNotPartOfThePeriod) {
  JobProfile job = two_phases(1, 60, 40);
  Duration shift{0};
  for (std::size_t i = 0; i < job.gangs[0].bursts.size(); ++i) {
    for (GangProfile& gang : job.gangs) {
      gang.bursts[i].wanted += shift;
      gang.bursts[i].ended += shift;
    }
    job.gangs[1].bursts[i].ended += from_seconds(30);  // waited so long before it ran
    shift += from_seconds(30);
  }
  EXPECT_NEAR(shape_of(job).period_s, 100, 0.1);
}

TEST(Profile, LagOfJobsWithDifferentPeriodsIsNotStable) {
  JobShape same = shape_of(two_phases(1, 60, 40));
  JobShape other = shape_of(two_phases(2, 60, 50));
  EXPECT_GT(lag_stable_rounds(same, same), 1000);
  EXPECT_NEAR(lag_stable_rounds(same, other), 11, 0.5);
}

}  // namespace
}  // namespace plexrl::clustermgr::placement
