// GPUs that an administrator keeps for one job alone.
#include "tests/unit/nodemgr/policy_fixture.h"

namespace plexrl::nodemgr::policy {
namespace {

class PolicyAloneTest : public PolicyTest {
 protected:
  PolicyAloneTest() {
    for (GangId id : {kA, kB, kC}) describe(id, Instant{0});
  }
  static std::string job_of(GangId id) { return "job" + std::to_string(static_cast<int>(id)); }
  /// All on GPU 0, without memory.
  void describe(GangId id, Instant alone_until, int priority = 50, GpuMask gpus = 1) {
    GangChanged event{id, job_of(id), priority, 0s, gpus};
    event.alone_until = alone_until;
    step_with({event});
  }
  void wants(GangId id) { step_with({WantsChanged{id, true, now}}); }
  void drains(GangId id) { step_with({GangDrained{id, state.find(id)->attempt}}); }
  bool runs(GangId id) const { return state.gangs.at(id).phase == Phase::kRunning; }
};

TEST_F(PolicyAloneTest, WhoHasAGpuThatIsKeptForAnotherGivesItBackAndWaits) {
  wants(kA);
  ASSERT_TRUE(runs(kA));
  describe(kB, 60s);
  ASSERT_NE(find(Kind::kWithdraw), nullptr) << "though nobody waits";
  EXPECT_EQ(find(Kind::kWithdraw)->reason, kKeptAlone);
  drains(kA);
  wants(kA);
  EXPECT_FALSE(runs(kA));
  ASSERT_NE(find(Kind::kWait), nullptr);
  EXPECT_EQ(find(Kind::kWait)->reason, kKeptAlone);
  EXPECT_EQ(find(Kind::kWait)->other, kB);
  EXPECT_LE(wake_at, 60s);
  wants(kB);
  EXPECT_TRUE(runs(kB));
}

TEST_F(PolicyAloneTest, AJobThatIsKeptAloneIsNotWithdrawnBeforeItsTimeIsOver) {
  describe(kA, 3600s);
  wants(kA);
  step_with({ActivityEdge{kA, false, now}});
  describe(kB, Instant{0}, 100);
  wants(kB);
  // Beyond its bound, too.
  for (Instant time : {2s, 300s, 3599s}) {
    at(time);
    EXPECT_EQ(find(Kind::kWithdraw), nullptr);
    EXPECT_LE(wake_at, 3600s);
  }
  at(3600s);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->gang, kA);
}

TEST_F(PolicyAloneTest, AWaiterRunsWhenItsTimeIsOverOrTakenBack) {
  describe(kA, 60s);
  wants(kB);
  EXPECT_FALSE(runs(kB));
  at(60s);
  EXPECT_TRUE(runs(kB));
  describe(kA, 120s);
  drains(kB);
  wants(kB);
  EXPECT_FALSE(runs(kB));
  describe(kA, Instant{0});
  EXPECT_TRUE(runs(kB));
}

TEST_F(PolicyAloneTest, OtherGpusAreEverybodys) {
  describe(kA, 60s);
  describe(kB, Instant{0}, 50, 2);
  wants(kB);
  EXPECT_TRUE(runs(kB));
}

TEST_F(PolicyAloneTest, OneThatIsPausedKeepsNobodyOff) {
  GangChanged event{kA, job_of(kA), 50, 0s, 1};
  event.alone_until = 60s;
  event.paused = true;
  step_with({event});
  wants(kB);
  EXPECT_TRUE(runs(kB));
}

TEST_F(PolicyAloneTest, GangsOfOneJobAndThoseThatAreBothKeptShare) {
  GangChanged sister{kC, job_of(kA), 50, 0s, 1};
  step_with({sister});
  describe(kA, 60s);
  wants(kC);
  EXPECT_TRUE(runs(kC)) << "of the same job";
  at(10s, {GangGone{kC}});
  describe(kB, 60s);
  wants(kA);
  EXPECT_TRUE(runs(kA));
  step_with({ActivityEdge{kA, false, now}});
  wants(kB);
  at(40s);
  EXPECT_EQ(state.find(kA)->phase, Phase::kDraining);
}

TEST_F(PolicyAloneTest, OneThatExitsGetsTheGpuAllTheSameAndKeepsIt) {
  describe(kA, 3600s);
  wants(kA);
  step_with({ActivityEdge{kA, false, now}});
  step_with({GangExiting{kB}, WantsChanged{kB, true, now}});
  at(10s);
  EXPECT_EQ(state.find(kA)->phase, Phase::kDraining);
  drains(kA);
  EXPECT_TRUE(runs(kB));
  at(11s);
  EXPECT_EQ(find(Kind::kWithdraw), nullptr) << "before it has ended";
}

TEST_F(PolicyAloneTest, ItsEndLetsTheOthersIn) {
  describe(kA, 3600s);
  wants(kB);
  EXPECT_FALSE(runs(kB));
  step_with({GangGone{kA}});
  EXPECT_TRUE(runs(kB));
}

}  // namespace
}  // namespace plexrl::nodemgr::policy
