#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "nodemgr/policy/step.h"

namespace plexrl::nodemgr::policy {
namespace {

using ::testing::HasSubstr;
using Kind = Decision::Kind;

constexpr GangId kA{1};
constexpr GangId kB{2};

/// A GPU of 1000 bytes and two gangs of 800 on it, of which the first has its bytes there.
class AbsenceTest : public ::testing::Test {
 protected:
  AbsenceTest() {
    at(1s, {GpuChanged{0, 1000}, GangChanged{kA, "a", 50, 0s, 1}, GangChanged{kB, "b", 50, 0s, 1},
            MemoryChanged{kA, 0, 800, 0, 800}, MemoryChanged{kB, 0, 800, 0, 0}});
  }
  void at(Instant now, std::vector<Event> events) {
    now_ = now;
    decisions_ = step(state_, events, now, 1).decisions;
  }
  void then(std::vector<Event> events) { at(now_, std::move(events)); }
  const Decision* find(Kind kind) const {
    auto it = std::find_if(decisions_.begin(), decisions_.end(),
                           [&](const Decision& d) { return d.kind == kind; });
    return it == decisions_.end() ? nullptr : &*it;
  }

  State state_;
  Instant now_{0};
  std::vector<Decision> decisions_;
};

TEST_F(AbsenceTest, AGangWhoseContextsLeaveGivesItsLeaseBackThoughNobodyWaits) {
  then({WantsChanged{kA, true, now_}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  at(2s, {ActivityEdge{kA, false, 2s}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  at(3s, {GangAbsent{kA, Absence::kLeaves}});
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "its contexts are to leave the GPU");
}

TEST_F(AbsenceTest, AGangWhoseContextsAreAwayGetsNoLeaseBeforeTheirRoomIsBooked) {
  then({GangAbsent{kA, Absence::kAway}, WantsChanged{kA, true, now_}});
  EXPECT_EQ(find(Kind::kGrant), nullptr);
  ASSERT_NE(find(Kind::kWait), nullptr);
  EXPECT_THAT(find(Kind::kWait)->reason, HasSubstr("checkpointed"));
  then({GangAbsent{kA, Absence::kReturns}});
  EXPECT_NE(find(Kind::kGrant), nullptr);
}

TEST_F(AbsenceTest, AGangWhoseContextsLeaveGivesUpAllItsMemoryOnceThoughNobodyNeedsIt) {
  then({GangAbsent{kA, Absence::kLeaves}});
  ASSERT_NE(find(Kind::kEvict), nullptr);
  EXPECT_EQ(find(Kind::kEvict)->bytes, 800);
  then({WantsChanged{kB, true, now_}});
  EXPECT_EQ(find(Kind::kEvict), nullptr);
  EXPECT_NE(find(Kind::kGrant), nullptr) << "it loads while the other leaves";
}

TEST_F(AbsenceTest, AGangThatStaysAfterAllGetsNoLeaseWhileItsMemoryIsStillLeaving) {
  then({GangAbsent{kA, Absence::kLeaves}});
  then({GangAbsent{kA, Absence::kHere}, WantsChanged{kA, true, now_}});
  EXPECT_EQ(find(Kind::kGrant), nullptr);
  then({MemoryChanged{kA, 0, 800, 0, 0}, GangEvicted{kA, 0, false, 800, 1s}});
  EXPECT_NE(find(Kind::kGrant), nullptr);
}

TEST_F(AbsenceTest, AGangThatIsUnitedWithOneThatIsAwayGivesItsLeaseBackAndWaitsForBoth) {
  then({WantsChanged{kA, true, now_}, GangAbsent{kB, Absence::kAway}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  at(2s, {GangsMerged{kA, kB}});
  ASSERT_NE(find(Kind::kGrant), nullptr) << "one lease for all of them";
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_THAT(find(Kind::kWithdraw)->reason, HasSubstr("checkpointed"));
  at(3s, {WantsChanged{kA, true, 3s}, GangDrained{kA, find(Kind::kWithdraw)->attempt}});
  ASSERT_NE(find(Kind::kRevoke), nullptr);
  EXPECT_EQ(find(Kind::kGrant), nullptr);
  then({GangAbsent{kA, Absence::kReturns}, MemoryChanged{kA, 0, 800, 0, 0}});
  EXPECT_NE(find(Kind::kGrant), nullptr);
}

TEST_F(AbsenceTest, WhatCouldNotLeaveIsAskedForAgainLater) {
  then({GangAbsent{kA, Absence::kLeaves}});
  then({GangEvicted{kA, 0, true, 0, 1s}});
  EXPECT_EQ(find(Kind::kEvict), nullptr);
  at(60s, {});
  EXPECT_NE(find(Kind::kEvict), nullptr);
}

}  // namespace
}  // namespace plexrl::nodemgr::policy
