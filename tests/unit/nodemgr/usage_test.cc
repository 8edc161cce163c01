#include "nodemgr/usage.h"

#include <gtest/gtest.h>

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

constexpr JobKey kA = 1;
constexpr JobKey kB = 2;
constexpr std::uint64_t kGangA = 11;
constexpr std::uint64_t kGangB = 12;
constexpr auto kStart = 1000s;  // long after boot

TEST(WindowSum, WhatIsOlderThanTheWindowIsForgotten) {
  WindowSum sum(10s);
  sum.add(100s, 101s, 5);
  EXPECT_DOUBLE_EQ(sum.recent(101s), 5);
  EXPECT_DOUBLE_EQ(sum.recent(109s), 5);
  EXPECT_DOUBLE_EQ(sum.recent(112s), 0);
  EXPECT_DOUBLE_EQ(sum.total(), 5);
}

TEST(WindowSum, OfALongStretchTheRecentPartCounts) {
  WindowSum sum(10s);
  sum.add(0s, 100s, 100);
  EXPECT_DOUBLE_EQ(sum.recent(100s),
                   std::chrono::duration<double>(100s - sum.window_begin(100s)).count());
}

TEST(WindowSum, AnAmountOfOneMomentCountsWhole) {
  WindowSum sum(10s);
  sum.add(50s, 50s, 7);
  EXPECT_DOUBLE_EQ(sum.recent(50s), 7);
}

TEST(WindowSum, WhatComesLateBelongsToItsOwnTime) {
  WindowSum sum(10s);
  sum.add(100s, 100s, 1);
  sum.add(50s, 51s, 9);  // long ago: only in the total
  EXPECT_DOUBLE_EQ(sum.recent(100s), 1);
  EXPECT_DOUBLE_EQ(sum.total(), 10);
}

class UsageTest : public ::testing::Test {
 protected:
  void run(JobKey job, std::uint64_t gang, Usage::Instant at, std::uint64_t gpus = 1) {
    usage.state(job, gang, "running", gpus, at);
  }
  Usage usage{kStart};
};

TEST_F(UsageTest, AHolderWithWorkHalfOfTheTimeMakesADutyOfAHalf) {
  run(kA, kGangA, kStart);
  for (auto at = kStart; at < kStart + 20s; at += 1s) {
    usage.activity(kGangA, true, at);
    usage.activity(kGangA, false, at + 500ms);
  }
  auto figures = usage.gpu(0, kStart + 20s);
  EXPECT_NEAR(figures.duty_ratio, 0.5, 0.03);
  EXPECT_NEAR(figures.duty_since_start_ratio, 0.5, 1e-9);
}

TEST_F(UsageTest, WorkThatIsStillOutstandingCountsUntilNow) {
  run(kA, kGangA, kStart + 2s);
  EXPECT_DOUBLE_EQ(usage.gpu(0, kStart + 4s).duty_since_start_ratio, 0.5);
  EXPECT_DOUBLE_EQ(usage.gpu(0, kStart + 4s).duty_ratio, 0.5)
      << "the window is as old as the manager";
}

TEST_F(UsageTest, AHolderThatWaitsLoadsOrIsIdleIsNoDuty) {
  usage.state(kA, kGangA, "waiting", 1, kStart);
  usage.state(kA, kGangA, "loading", 1, kStart + 1s);
  EXPECT_DOUBLE_EQ(usage.gpu(0, kStart + 2s).duty_ratio, 0);
  run(kA, kGangA, kStart + 2s);
  usage.activity(kGangA, false, kStart + 3s);
  usage.state(kA, kGangA, "draining", 1, kStart + 4s);
  usage.state(kA, kGangA, "idle", 1, kStart + 5s);
  usage.activity(kGangA, true, kStart + 6s);  // at the closed gate
  EXPECT_DOUBLE_EQ(usage.gpu(0, kStart + 8s).duty_since_start_ratio, 1.0 / 8);
}

TEST_F(UsageTest, AnEdgeFromBeforeTheLeaseDoesNotCountAgainstIt) {
  run(kA, kGangA, kStart + 5s);
  usage.activity(kGangA, false, kStart + 1s);
  EXPECT_DOUBLE_EQ(usage.gpu(0, kStart + 10s).duty_since_start_ratio, 0);
}

TEST_F(UsageTest, EachGpuOfALeaseHasItsOwnDuty) {
  run(kA, kGangA, kStart, 0b01);
  run(kB, kGangB, kStart + 5s, 0b10);
  EXPECT_DOUBLE_EQ(usage.gpu(0, kStart + 10s).duty_since_start_ratio, 1);
  EXPECT_DOUBLE_EQ(usage.gpu(1, kStart + 10s).duty_since_start_ratio, 0.5);
}

TEST_F(UsageTest, LinkRatesAreBytesOverTheWindow) {
  usage.moved_out(0, 4000, kStart + 1s, kStart + 2s);
  usage.moved_in(0, 2000, kStart + 3s, kStart + 4s);
  auto figures = usage.gpu(0, kStart + 4s);
  EXPECT_DOUBLE_EQ(figures.out_bytes_s, 1000);
  EXPECT_DOUBLE_EQ(figures.in_bytes_s, 500);
  figures = usage.gpu(0, kStart + 60s);
  EXPECT_DOUBLE_EQ(figures.out_bytes_s, 0);
  EXPECT_EQ(figures.out_bytes, 4000u);
  EXPECT_EQ(figures.in_bytes, 2000u);
}

TEST_F(UsageTest, SharesAreOfTheTimeThatWasGranted) {
  EXPECT_FALSE(usage.job(kA, kStart).share_ratio);
  run(kA, kGangA, kStart);
  usage.state(kA, kGangA, "idle", 1, kStart + 3s);
  run(kB, kGangB, kStart + 10s);
  auto now = kStart + 11s;
  EXPECT_DOUBLE_EQ(*usage.job(kA, now).share_ratio, 0.75);
  EXPECT_DOUBLE_EQ(*usage.job(kB, now).share_ratio, 0.25);
  // A job that has ended still took its part.
  usage.state(kB, kGangB, "gone", 1, now);
  usage.forget(kB);
  EXPECT_DOUBLE_EQ(*usage.job(kA, now).share_ratio, 0.75);
}

TEST_F(UsageTest, SlowdownIsAllOfItsTimeOverRunningAndIdle) {
  EXPECT_FALSE(usage.job(kA, kStart).slowdown_ratio);
  usage.state(kA, kGangA, "waiting", 1, kStart);
  usage.state(kA, kGangA, "loading", 1, kStart + 3s);
  run(kA, kGangA, kStart + 4s);
  usage.state(kA, kGangA, "idle", 1, kStart + 6s);
  auto figures = usage.job(kA, kStart + 8s);
  EXPECT_DOUBLE_EQ(*figures.slowdown_ratio, 2);
  EXPECT_EQ(figures.waited, 3s);
  usage.state(kA, kGangA, "gone", 1, kStart + 8s);
  EXPECT_EQ(usage.job(kA, kStart + 9s).waited, 3s) << "of gangs that are gone too";
}

}  // namespace
}  // namespace plexrl::nodemgr
