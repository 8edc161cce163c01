#include "nodemgr/recent_bursts.h"

#include <gtest/gtest.h>

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

struct RecentBurstsTest : ::testing::Test {
  policy::State state;
  policy::Gang& gang = state.gangs[policy::GangId{1}];
  RecentBursts recent;

  void wants(std::chrono::nanoseconds at) {
    gang.in_gap = false;
    gang.wants = true;
    gang.want_since = at;
    recent.look(state);
  }
  void rests(std::chrono::nanoseconds at, std::chrono::nanoseconds work) {
    gang.in_gap = true;
    gang.wants = false;
    gang.gap_since = at;
    gang.burst_before = work;
    recent.look(state);
  }
  const std::deque<RecentBursts::Burst>& all() const { return recent.of(policy::GangId{1}); }
};

TEST_F(RecentBurstsTest, ABurstIsFromItsWishToItsEnd) {
  wants(10s);
  recent.look(state);
  rests(14s, 3s);  // one second it waited
  recent.look(state);
  ASSERT_EQ(all().size(), 1);
  EXPECT_EQ(all()[0].wanted, 10s);
  EXPECT_EQ(all()[0].ended, 14s);
  EXPECT_EQ(all()[0].work, 3s);
}

TEST_F(RecentBurstsTest, OneThatRunsOnInItsLeaseBeginsWithItsWork) {
  gang.busy_since = 20s;
  gang.in_gap = false;
  recent.look(state);
  rests(25s, 5s);
  ASSERT_EQ(all().size(), 1);
  EXPECT_EQ(all()[0].wanted, 20s);
}

TEST_F(RecentBurstsTest, OneThatNobodySawIsThereAllTheSame) {
  wants(10s);
  rests(12s, 2s);
  rests(20s, 3s);
  ASSERT_EQ(all().size(), 2);
  EXPECT_EQ(all()[1].wanted, 17s);
  EXPECT_EQ(all()[1].work, 3s);
}

TEST_F(RecentBurstsTest, OnlyTheLastAreKeptAndNoneOfAGangThatHasGone) {
  for (std::int64_t i = 1; i <= 100; ++i) {
    wants(std::chrono::seconds(10 * i));
    rests(std::chrono::seconds(10 * i + 1), 1s);
  }
  EXPECT_EQ(all().size(), RecentBursts::kMost);
  EXPECT_EQ(all().back().wanted, 1000s);
  state.gangs.clear();
  recent.look(state);
  EXPECT_TRUE(all().empty());
}

}  // namespace
}  // namespace plexrl::nodemgr
