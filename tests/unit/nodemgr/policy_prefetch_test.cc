// Whose memory comes back before it is asked for, and when.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/nodemgr/policy_fixture.h"

namespace plexrl::nodemgr::policy {
namespace {

/// A has gaps of 2 s and is in one, without a lease and without its 400 bytes; B holds the GPU with
/// 500 of its 1000. Loading takes 1 ms a byte.
class PolicyPrefetchTest : public PolicyTest {
 protected:
  void SetUp() override {
    gang(kA, 1, 400);
    gang(kB, 1, 500);
    state.gpus[0].in_ns_per_byte = 1e6;
    runs(kA, 400);
    for (int i = 0; i < 8; ++i) {
      at(now + 400ms, {ActivityEdge{kA, false, now + 400ms}});
      at(now + 2s, {ActivityEdge{kA, true, now + 2s}});
    }
    at(now + 400ms, {ActivityEdge{kA, false, now + 400ms}});
    gap_since = now;
    step_with({WantsChanged{kB, true, now}});
    for (int i = 0; i < 10 && find(Kind::kWithdraw) == nullptr; ++i) at(wake_at);
    ASSERT_NE(find(Kind::kWithdraw), nullptr);
    step_with({GangDrained{kA, find(Kind::kWithdraw)->attempt}});
    step_with({MemoryChanged{kA, 0, 400, 0, 0}, MemoryChanged{kB, 0, 500, 0, 500}, GangLoaded{kB}});
    ASSERT_EQ(state.find(kB)->phase, Phase::kRunning);
    ASSERT_EQ(find(Kind::kPrefetch), nullptr) << "too early";
  }
  Instant gap_since{0};
};

TEST_F(PolicyPrefetchTest, ItBeginsWhenLoadingTakesAboutAsLongAsTheGapStillLasts) {
  // 400 bytes at half of the link take 800 ms, and a quarter more in case.
  EXPECT_EQ(wake_at, gap_since + 1s);
  at(wake_at);
  const Decision* const prefetch = find(Kind::kPrefetch);
  ASSERT_NE(prefetch, nullptr);
  EXPECT_EQ(prefetch->gang, kA);
  EXPECT_EQ(prefetch->gpu, 0);
  EXPECT_EQ(prefetch->bytes, 400);
  EXPECT_DOUBLE_EQ(prefetch->bytes_per_s, 500);
  EXPECT_EQ(prefetch->reason, "it wakes soon");
  EXPECT_THAT(prefetch->figures, ::testing::Contains(Figure{"wakes_in_ns", 1e9}));
  EXPECT_EQ(state.free_bytes(0), 100);
  at(now + 500ms);
  EXPECT_EQ(find(Kind::kPrefetch), nullptr) << "it is asked once";
  step_with({MemoryChanged{kA, 0, 400, 0, 400}});
  EXPECT_EQ(state.free_bytes(0), 100);
}

TEST_F(PolicyPrefetchTest, NotWhileItsContextsAreAway) {
  step_with({GangAbsent{kA, Absence::kAway}});
  at(gap_since + 1s);
  EXPECT_EQ(find(Kind::kPrefetch), nullptr);
  step_with({GangAbsent{kA, Absence::kHere}});
  EXPECT_NE(find(Kind::kPrefetch), nullptr);
}

TEST_F(PolicyPrefetchTest, OnlyIntoFreeMemory) {
  step_with({MemoryChanged{kB, 0, 900, 0, 900}});
  at(wake_at);
  ASSERT_NE(find(Kind::kPrefetch), nullptr);
  EXPECT_EQ(find(Kind::kPrefetch)->bytes, 100);
  EXPECT_EQ(find(Kind::kEvict), nullptr);
}

TEST_F(PolicyPrefetchTest, NoneWhereThereIsNoRoom) {
  step_with({MemoryChanged{kB, 0, 1000, 0, 1000}});
  for (int i = 0; i < 30; ++i) {
    at(now + 100ms);
    EXPECT_EQ(find(Kind::kPrefetch), nullptr);
  }
}

TEST_F(PolicyPrefetchTest, NoneWhenItIsTurnedOff) {
  state.config.prefetch_share = 0;
  for (int i = 0; i < 30; ++i) {
    at(now + 100ms);
    EXPECT_EQ(find(Kind::kPrefetch), nullptr);
  }
}

TEST_F(PolicyPrefetchTest, NoneForAGangThatIsPaused) {
  step_with({GangChanged{kA, "job", 50, 0s, 1, false, "", 0, true}});
  for (int i = 0; i < 30; ++i) {
    at(now + 100ms);
    EXPECT_EQ(find(Kind::kPrefetch), nullptr);
  }
}

TEST_F(PolicyPrefetchTest, WhoNeedsTheRoomGetsItBack) {
  at(wake_at);
  ASSERT_NE(find(Kind::kPrefetch), nullptr);
  step_with({MemoryChanged{kB, 0, 900, 0, 500}});  // it grows, while A's are on their way
  const Decision* const evict = find(Kind::kEvict);
  ASSERT_NE(evict, nullptr);
  EXPECT_EQ(evict->gang, kA);
  EXPECT_EQ(evict->bytes, 300);
  step_with({MemoryChanged{kA, 0, 400, 0, 100}, GangEvicted{kA, 0, false, 0, 1ms}});
  EXPECT_EQ(find(Kind::kPrefetch), nullptr) << "nothing is free";
  EXPECT_EQ(state.free_bytes(0), 400);
}

TEST_F(PolicyPrefetchTest, WhatIsOnItsWayIsNoReasonToEvictOthersForIt) {
  gang(kC, 1, 100);
  step_with({MemoryChanged{kC, 0, 100, 0, 100}});
  at(wake_at);
  ASSERT_NE(find(Kind::kPrefetch), nullptr);
  EXPECT_EQ(find(Kind::kPrefetch)->bytes, 400);
  step_with({ActivityEdge{kB, false, now}, WantsChanged{kA, true, now}});
  for (int i = 0; i < 10 && find(Kind::kWithdraw) == nullptr; ++i) at(wake_at);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  step_with({GangDrained{kB, find(Kind::kWithdraw)->attempt}});
  EXPECT_EQ(find(Kind::kEvict), nullptr);
  ASSERT_NE(find(Kind::kGrant), nullptr);
  EXPECT_FALSE(find(Kind::kGrant)->run_now) << "not all of it has come";
}

TEST_F(PolicyPrefetchTest, AWaiterNeedNotBePredicted) {
  gang(kC, 1, 300);
  step_with({WantsChanged{kC, true, now}});
  const Decision* const prefetch = find(Kind::kPrefetch);
  ASSERT_NE(prefetch, nullptr);
  EXPECT_EQ(prefetch->gang, kC);
  EXPECT_EQ(prefetch->bytes, 300);
  EXPECT_EQ(prefetch->reason, "it waits");
}

TEST_F(PolicyPrefetchTest, NobodyLoadsBesideAChangeOfHolder) {
  gang(kC, 1, 300);
  step_with({ActivityEdge{kB, false, now}, WantsChanged{kC, true, now}});
  bool has_prefetched = find(Kind::kPrefetch) != nullptr;
  for (int i = 0; i < 10 && find(Kind::kWithdraw) == nullptr; ++i) at(wake_at);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_TRUE(has_prefetched);
  at(gap_since + 1500ms);
  EXPECT_EQ(find(Kind::kPrefetch), nullptr) << "A's turn would have come, but B drains";
}

TEST_F(PolicyPrefetchTest, OneGangAtATime) {
  gang(kC, 1, 50);
  step_with({GangChanged{kB, "job", 50, 0s, 1, true}});  // it can't be cut, and so goes on
  step_with({WantsChanged{kC, true, now}});
  ASSERT_NE(find(Kind::kPrefetch), nullptr);
  EXPECT_EQ(find(Kind::kPrefetch)->gang, kC);
  at(gap_since + 1500ms);
  EXPECT_EQ(find(Kind::kPrefetch), nullptr) << "A's turn would have come, but C's memory comes";
  step_with({MemoryChanged{kC, 0, 50, 0, 50}});
  ASSERT_NE(find(Kind::kPrefetch), nullptr);
  EXPECT_EQ(find(Kind::kPrefetch)->gang, kA);
}

TEST_F(PolicyPrefetchTest, WhereNothingCanComeItIsNotAskedForAgainAndAgain) {
  int asked = 0;
  at(wake_at);
  for (const Instant end = gap_since + 1900ms; now < end; at(now + 10ms)) {
    if (find(Kind::kPrefetch) == nullptr) continue;
    ++asked;
    step_with({MemoryChanged{kA, 0, 400, 0, 0}});
  }
  EXPECT_EQ(asked, 1);
}

TEST_F(PolicyPrefetchTest, AGapLongerThanAnyBeforeTellsNothing) {
  step_with({MemoryChanged{kB, 0, 1000, 0, 1000}});  // no room while A is expected
  at(gap_since + 30s, {MemoryChanged{kB, 0, 500, 0, 500}});
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(find(Kind::kPrefetch), nullptr);
    at(now + 1s);
  }
}

TEST_F(PolicyPrefetchTest, WhoseGapIsLongerThanAnyBeforeLeavesByItsLastUse) {
  gang(kC, 1, 600);
  // All of A and C is in HBM; A has not been used for long, C has until now.
  now = gap_since + 60s;
  state.find(kC)->lease_ended = now - 1s;
  step_with({MemoryChanged{kA, 0, 400, 0, 400}, MemoryChanged{kB, 0, 500, 0, 0},
             MemoryChanged{kC, 0, 600, 0, 600}});
  const Decision* const evict = find(Kind::kEvict);  // the holder lacks its memory
  ASSERT_NE(evict, nullptr);
  EXPECT_EQ(evict->gang, kA);
}

TEST_F(PolicyTest, WhoIsExpectedBackLastLeavesFirst) {
  gang(kA, 1, 400);
  gang(kB, 1, 400);
  gang(kC, 1, 600);
  // A's gaps are long, B's are not known and B was used before A.
  runs(kA, 400);
  for (int i = 0; i < 8; ++i) {
    at(now + 400ms, {ActivityEdge{kA, false, now + 400ms}});
    at(now + 60s, {ActivityEdge{kA, true, now + 60s}});
  }
  at(now + 400ms, {ActivityEdge{kA, false, now + 400ms}});
  state.find(kB)->lease_ended = now - 10s;
  state.find(kB)->memory[0].resident = 400;
  step_with({WantsChanged{kC, true, now}});
  for (int i = 0; i < 10 && find(Kind::kWithdraw) == nullptr; ++i) at(wake_at);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  step_with({GangDrained{kA, find(Kind::kWithdraw)->attempt}});
  const Decision* const evict = find(Kind::kEvict);
  ASSERT_NE(evict, nullptr);
  EXPECT_EQ(evict->gang, kA);
}

}  // namespace
}  // namespace plexrl::nodemgr::policy
