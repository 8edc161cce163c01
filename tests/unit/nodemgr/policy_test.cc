#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "nodemgr/policy/backoff.h"
#include "nodemgr/policy/cost.h"
#include "nodemgr/policy/order.h"
#include "nodemgr/policy/wake.h"
#include "tests/unit/nodemgr/policy_fixture.h"

namespace plexrl::nodemgr::policy {
namespace {

TEST_F(PolicyTest, AFreeGpuIsGrantedAtOnceAndRunsWithoutLoading) {
  gang(kA, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  const Decision* grant = find(Kind::kGrant);
  ASSERT_NE(grant, nullptr);
  EXPECT_TRUE(grant->run_now);
  EXPECT_EQ(grant->gpus, 1u);
}

TEST_F(PolicyTest, AGangWithBytesElsewhereLoadsBeforeItRuns) {
  gang(kA, 1, 500);
  step_with({WantsChanged{kA, true, now}});
  EXPECT_FALSE(find(Kind::kGrant)->run_now);
  EXPECT_EQ(find(Kind::kRun), nullptr);
  step_with({GangLoaded{kA}});
  EXPECT_NE(find(Kind::kRun), nullptr);
}

TEST_F(PolicyTest, AnIdleHolderIsWithdrawnAfterTheGraceTime) {
  gang(kA, 1, 0);
  gang(kB, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  at(1s + 20ms, {ActivityEdge{kA, false, 1s + 20ms}});
  at(1s + 21ms, {WantsChanged{kB, true, 1s + 21ms}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(wake_at, 1s + 25ms);
  at(1s + 25ms);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "holder idle");
}

TEST_F(PolicyTest, ABusyHolderKeepsItsQuantum) {
  gang(kA, 1, 0);
  gang(kB, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  at(1s + 99ms, {WantsChanged{kB, true, 1s}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  at(1s + 100ms);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "quantum over");
}

TEST_F(PolicyTest, TheQuantumIsAMultipleOfTheSwitchCost) {
  state.gpus[0].in_ns_per_byte = 1e5;  // 600 bytes take 60 ms
  gang(kA, 1, 0);
  gang(kB, 1, 600);
  step_with({WantsChanged{kA, true, now}});
  state.config.switch_share = 0.5;
  at(1s + 590ms, {WantsChanged{kB, true, 1s}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  at(1s + 610ms);
  EXPECT_NE(find(Kind::kWithdraw), nullptr);
}

TEST_F(PolicyTest, TheQuantumKeepsSwitchingBelowItsShare) {
  state.gpus[0].in_ns_per_byte = 1e5;  // 600 bytes take 60 ms: 19 times that is 95 % of the time
  state.config.switch_share = 0.05;
  gang(kA, 1, 0);
  gang(kB, 1, 600);
  step_with({WantsChanged{kA, true, now}});
  at(1s + 1130ms, {WantsChanged{kB, true, 1s}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  at(1s + 1150ms);
  EXPECT_NE(find(Kind::kWithdraw), nullptr);
}

TEST_F(PolicyTest, AHigherPriorityDoesNotWaitForTheQuantum) {
  gang(kA, 1, 0, 10);
  gang(kB, 1, 0, 20);
  step_with({WantsChanged{kA, true, now}});
  at(1s + 1ms, {WantsChanged{kB, true, 1s + 1ms}});
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "waiter has the higher priority");
}

TEST_F(PolicyTest, ALowerPriorityGetsGapsButNoQuantum) {
  gang(kA, 1, 0, 20);
  gang(kB, 1, 0, 10);
  step_with({WantsChanged{kA, true, now}});
  at(3s, {WantsChanged{kB, true, 2s}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWait)->reason, "holder runs until: waiter near its bound");
  at(4s, {ActivityEdge{kA, false, 4s}});
  at(4s + 5ms);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "holder idle");
}

TEST_F(PolicyTest, WhoWasServedAtItsBoundIsNotPreemptedAtOnce) {
  gang(kA, 1, 0, 20);
  gang(kB, 1, 0, 10);
  step_with({WantsChanged{kA, true, now}});
  at(2s, {WantsChanged{kB, true, 2s}});
  at(2s + 91s);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  step_with({GangDrained{kA, 1}});
  EXPECT_EQ(state.find(kB)->phase, Phase::kRunning);
  step_with({WantsChanged{kA, true, now}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  at(now + state.config.min_quantum);
  EXPECT_NE(find(Kind::kWithdraw), nullptr);
}

TEST_F(PolicyTest, AGapThatIsKnownToBeShortIsKept) {
  state.config.min_quantum = 1000s;
  gang(kA, 1, 0);
  gang(kB, 1, 600);
  state.gpus[0].in_ns_per_byte = 1e5;  // 600 bytes take 60 ms
  step_with({WantsChanged{kA, true, now}});
  for (int i = 0; i < 8; ++i) {
    at(now + 400ms, {ActivityEdge{kA, false, now + 400ms}});
    at(now + 20ms, {ActivityEdge{kA, true, now + 20ms}});
  }
  at(now + 50ms, {ActivityEdge{kA, false, now + 50ms}, WantsChanged{kB, true, now + 50ms}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  at(now + 15ms);
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  // Much longer than any before: what is known says nothing any more.
  at(now + 60ms);
  EXPECT_NE(find(Kind::kWithdraw), nullptr);
}

TEST_F(PolicyTest, AGapThatIsKnownToBeLongIsGivenAwayAtOnce) {
  state.config.min_quantum = 1000s;
  gang(kA, 1, 0);
  gang(kB, 1, 600);
  state.gpus[0].in_ns_per_byte = 1e5;
  step_with({WantsChanged{kA, true, now}});
  for (int i = 0; i < 8; ++i) {
    at(now + 400ms, {ActivityEdge{kA, false, now + 400ms}});
    at(now + 2s, {ActivityEdge{kA, true, now + 2s}});
  }
  at(now + 400ms, {ActivityEdge{kA, false, now + 400ms}, WantsChanged{kB, true, now + 400ms}});
  at(now + 5ms);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "holder idle");
}

TEST_F(PolicyTest, TheNextWakeFollowsFromTheGapsLikeThisOne) {
  gang(kA, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(predicted_wake(*state.find(kA), now), std::nullopt) << "it is in no gap";
    at(now + 400ms, {ActivityEdge{kA, false, now + 400ms}});
    if (i == 3) break;
    EXPECT_EQ(predicted_wake(*state.find(kA), now), std::nullopt) << i << " gaps are known";
    at(now + 2s, {ActivityEdge{kA, true, now + 2s}});
  }
  EXPECT_EQ(predicted_wake(*state.find(kA), now), now + 2s);
  EXPECT_EQ(predicted_wake(*state.find(kA), now + 500ms), now + 2s);
  EXPECT_EQ(predicted_wake(*state.find(kA), now + 30s), now + 30s) << "it is late";
}

TEST_F(PolicyTest, TimeAtTheGateIsNoPartOfAGap) {
  gang(kA, 1, 0);
  gang(kB, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  at(2s, {ActivityEdge{kA, false, 2s}, WantsChanged{kB, true, 2s}});
  at(2s + 5ms);
  step_with({GangDrained{kA, 1}});
  ASSERT_EQ(state.find(kB)->phase, Phase::kRunning);
  at(2s + 50ms, {WantsChanged{kA, true, 2s + 50ms}});  // B keeps the GPU for its quantum
  at(3s);
  step_with({GangDrained{kB, 1}});
  ASSERT_EQ(state.find(kA)->phase, Phase::kRunning);
  EXPECT_EQ(state.find(kA)->profile.gaps().quantile(0.5), 50ms);
  EXPECT_EQ(state.find(kA)->profile.bursts().quantile(0.5), 1s);
}

TEST_F(PolicyTest, AnOwnersBoundKeepsTheGapAndComesFirst) {
  gang(kA, 1, 700);
  gang(kB, 1, 700);
  for (int gpu : {0, 1}) state.gpus[gpu].in_ns_per_byte = state.gpus[gpu].out_ns_per_byte = 1e5;
  state.find(kA)->max_slowdown = 1.05;
  runs(kA, 700);
  // Idle for 1 s, of an allowance of 0.05 s: coming back would cost more than that.
  at(2s, {ActivityEdge{kA, false, 1s}, WantsChanged{kB, true, 1s}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  // B is not so patient for ever; once it runs, A goes before everybody as soon as it wants to.
  at(1s + 119s);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  step_with({GangDrained{kA, 1}});
  step_with({MemoryChanged{kA, 0, 700, 0, 300}, GangEvicted{kA, 0, false, 400, 1ms}});
  step_with({MemoryChanged{kB, 0, 700, 0, 700}, GangLoaded{kB}});
  ASSERT_EQ(state.find(kB)->phase, Phase::kRunning);
  at(now + 20s, {WantsChanged{kA, true, now}});
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "waiter slower than its owner allows");
}

TEST_F(PolicyTest, AWaiterNearItsBoundComesBeforeTheQuantum) {
  state.gpus[0].in_ns_per_byte = 1e9;  // 600 bytes take 600 s: an absurd quantum
  gang(kA, 1, 0);
  gang(kB, 1, 600);
  step_with({WantsChanged{kA, true, now}});
  at(2s, {WantsChanged{kB, true, 2s}});
  at(2s + 59s);
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  at(2s + 61s);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "waiter near its bound");
}

TEST_F(PolicyTest, AFailedAttemptReopensAndBacksOff) {
  gang(kA, 1, 0);
  gang(kB, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  at(2s, {WantsChanged{kB, true, 2s}});
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  at(2s + 250ms, {GangNotDrained{kA, 1, "capture in progress"}});
  ASSERT_NE(find(Kind::kReopen), nullptr);
  EXPECT_THAT(find(Kind::kReopen)->reason, ::testing::HasSubstr("capture in progress"));
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  EXPECT_GE(wake_at, 2s + 250ms + 200ms);
  at(wake_at);
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->attempt, 2u);
}

TEST_F(PolicyTest, AHolderThatFinishesNothingWhileOthersWaitHangs) {
  state.config.hang_after = 60s;
  gang(kA, 1, 0);
  gang(kB, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  at(2s, {WantsChanged{kB, true, 2s}});
  const auto fail_until = [&](Instant end) {
    bool told = false;
    while (now < end) {
      if (const Decision* const asked = find(Kind::kWithdraw)) {
        const std::uint64_t attempt = asked->attempt;
        at(now + 250ms, {GangNotDrained{kA, attempt, "stream busy"}});
        told |= find(Kind::kHang) != nullptr;
      }
      at(std::max(now, std::min(wake_at, end)));
      told |= find(Kind::kHang) != nullptr;
    }
    return told;
  };
  EXPECT_FALSE(fail_until(50s));
  step_with({GangProgressed{kA}});  // a long kernel has ended, the next has begun
  EXPECT_FALSE(fail_until(100s));
  EXPECT_TRUE(fail_until(130s));
  EXPECT_FALSE(fail_until(300s)) << "once is enough";
  EXPECT_THAT(state.find(kA)->obstacle, ::testing::HasSubstr("stream busy"));
}

TEST_F(PolicyTest, NobodyHangsWhileNobodyWaits) {
  state.config.hang_after = 60s;
  gang(kA, 1, 0);
  gang(kB, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  // Paused, it is asked to give its lease back, and can't.
  GangChanged paused{kA, "job", 50, 0s, 1};
  paused.paused = true;
  step_with({paused});
  while (now < 200s) {
    if (const Decision* const asked = find(Kind::kWithdraw)) {
      at(now + 250ms, {GangNotDrained{kA, asked->attempt, "stream busy"}});
    }
    EXPECT_EQ(find(Kind::kHang), nullptr);
    ASSERT_NE(wake_at, kNever);
    at(std::max(now, wake_at));
    EXPECT_EQ(find(Kind::kHang), nullptr);
  }
  at(now + 1s, {WantsChanged{kB, true, now}});
  EXPECT_NE(find(Kind::kHang), nullptr);
}

TEST_F(PolicyTest, AnAnswerToAnEarlierAttemptIsIgnored) {
  gang(kA, 1, 0);
  gang(kB, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  at(2s, {WantsChanged{kB, true, 2s}});
  step_with({GangDrained{kA, 7}});
  EXPECT_EQ(find(Kind::kRevoke), nullptr);
}

TEST_F(PolicyTest, AnExclusiveHolderIsNeverWithdrawn) {
  gang(kA, 1, 0, 50, true);
  gang(kB, 1, 0, 100);
  step_with({WantsChanged{kA, true, now}});
  at(1000s, {WantsChanged{kB, true, 1s}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  ASSERT_NE(find(Kind::kWait), nullptr);
  EXPECT_EQ(find(Kind::kWait)->reason, "holder is exclusive");
  EXPECT_EQ(find(Kind::kWait)->other, kA);
}

TEST_F(PolicyTest, SeveralGpusComeAllOrNotAtAll) {
  gang(kA, 2, 0, 50, true);
  gang(kB, 3, 0);
  step_with({WantsChanged{kA, true, now}});
  step_with({WantsChanged{kB, true, now}});
  EXPECT_EQ(find(Kind::kGrant), nullptr);
  step_with({GangGone{kA}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  EXPECT_EQ(find(Kind::kGrant)->gpus, 3u);
}

TEST_F(PolicyTest, WhoAsksForMoreFirstGivesBack) {
  gang(kA, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  step_with({GangChanged{kA, "job", 50, 0s, 3, false}, WantsChanged{kA, true, now}});
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "asks for more GPUs than it holds");
  step_with({GangDrained{kA, 1}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  EXPECT_EQ(find(Kind::kGrant)->gpus, 3u);
}

TEST_F(PolicyTest, PriorityGoesBeforeWaitingAndExitingBeforeBoth) {
  for (GangId id : {kA, kB, kC}) gang(id, 1, 0, id == kB ? 90 : 10);
  for (GangId id : {kA, kB, kC}) {
    state.find(id)->phase = Phase::kWaiting;
    state.find(id)->wants = true;
    state.find(id)->want_since = Instant(static_cast<int>(id));
  }
  state.find(kC)->exiting = true;
  std::vector<GangId> order;
  for (Gang* waiter : waiting_in_order(state, 1s)) order.push_back(waiter->id);
  EXPECT_THAT(order, ::testing::ElementsAre(kC, kB, kA));
}

TEST_F(PolicyTest, AWaitNearItsBoundOvertakesPriority) {
  for (GangId id : {kA, kB}) gang(id, 1, 0, id == kB ? 90 : 10);
  for (GangId id : {kA, kB}) {
    state.find(id)->phase = Phase::kWaiting;
    state.find(id)->want_since = id == kA ? 0s : 100s;
  }
  EXPECT_EQ(waiting_in_order(state, 115s).front()->id, kA);
}

TEST_F(PolicyTest, AFrozenGpuIsNotGranted) {
  gang(kA, 1, 0);
  step_with({GpuChanged{0, 1000, true}, WantsChanged{kA, true, now}});
  EXPECT_EQ(find(Kind::kGrant), nullptr);
  step_with({GpuChanged{0, 1000, false}});
  EXPECT_NE(find(Kind::kGrant), nullptr);
}

TEST_F(PolicyTest, AnUnansweredAttemptIsAbandoned) {
  gang(kA, 1, 0);
  gang(kB, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  at(2s, {WantsChanged{kB, true, 2s}});
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  at(2s + state.config.attempt_patience);
  ASSERT_NE(find(Kind::kReopen), nullptr);
  EXPECT_EQ(find(Kind::kReopen)->reason, "no answer");
}

TEST_F(PolicyTest, MergedGangsGetOneLeaseOverWhatBothHeld) {
  gang(kA, 1, 0);
  gang(kB, 2, 0);
  step_with({WantsChanged{kA, true, now}, WantsChanged{kB, true, now}});
  step_with({GangsMerged{kA, kB}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  EXPECT_EQ(find(Kind::kGrant)->gpus, 3u);
  EXPECT_EQ(state.find(kB), nullptr);
}

TEST_F(PolicyTest, MergedHoldersGoOnWithinTheirTurn) {
  gang(kA, 1, 0);
  gang(kB, 2, 0);
  at(2s, {WantsChanged{kA, true, now}});
  at(3s, {WantsChanged{kB, true, now}});
  at(4s, {GangsMerged{kA, kB}});
  EXPECT_TRUE(find(Kind::kGrant)->run_now) << "their gates are open";
  EXPECT_EQ(state.find(kA)->phase, Phase::kRunning);
  EXPECT_EQ(state.find(kA)->turn_since, 2s) << "or a gang that is united often would keep its GPU";
}

TEST_F(PolicyTest, AHolderThatAsksForMoreGpusGivesBackWhatItHoldsAtOnce) {
  gang(kA, 1, 0);
  gang(kB, 2, 0);
  step_with({WantsChanged{kA, true, now}, WantsChanged{kB, true, now}});
  step_with({GangChanged{kA, "job", 50, 0s, 3}, WantsChanged{kA, true, now}});
  ASSERT_NE(find(Kind::kWithdraw), nullptr) << "though the other has just begun its turn";
  EXPECT_EQ(find(Kind::kWithdraw)->gang, kA);
  EXPECT_EQ(state.find(kB)->phase, Phase::kRunning);
}

TEST_F(PolicyTest, PartedGangsKeepTheirPartsOfTheLeaseAndOfTheMemory) {
  gang(kA, 3, 100);
  step_with({WantsChanged{kA, true, now}});
  step_with({MemoryChanged{kA, 0, 100, 0, 100}, MemoryChanged{kA, 1, 100, 0, 100}, GangLoaded{kA}});
  step_with({GangChanged{kB, "job", 50, 0s, 2}, GangParted{kA, kB, 2},
             GangChanged{kA, "job", 50, 0s, 1}});
  EXPECT_EQ(2, std::count_if(decisions.begin(), decisions.end(), [](const Decision& d) {
              return d.kind == Kind::kGrant && d.run_now;
            }));
  EXPECT_EQ(state.find(kA)->held, 1u);
  EXPECT_EQ(state.find(kB)->held, 2u);
  EXPECT_EQ(state.find(kA)->memory.size(), 1u);
  EXPECT_EQ(state.find(kB)->memory.at(1).resident, 100);
  // One of them is withdrawn without the other.
  gang(kC, 2, 100);
  at(now + 10s, {WantsChanged{kC, true, now + 10s}, ActivityEdge{kB, false, now}});
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->gang, kB);
  EXPECT_EQ(state.find(kA)->phase, Phase::kRunning);
}

TEST_F(PolicyTest, PartedGangsWithoutALeaseWaitEachForItself) {
  gang(kA, 3, 100);
  step_with({GangChanged{kB, "job", 50, 0s, 2}, GangParted{kA, kB, 2},
             GangChanged{kA, "job", 50, 0s, 1}});
  EXPECT_EQ(find(Kind::kGrant), nullptr);
  step_with({WantsChanged{kB, true, now}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  EXPECT_EQ(find(Kind::kGrant)->gpus, 2u);
  EXPECT_EQ(state.find(kA)->phase, Phase::kIdle);
}

TEST_F(PolicyTest, EveryWithdrawalCarriesItsFigures) {
  gang(kA, 1, 0);
  gang(kB, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  at(2s, {WantsChanged{kB, true, 2s}});
  std::vector<std::string> names;
  for (const Figure& figure : find(Kind::kWithdraw)->figures) names.push_back(figure.name);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"switch_cost_ns", "quantum_ns", "waited_ns",
                                              "behind_share_ns", "response_ratio"}));
  step_with({GangNotDrained{kA, 1, "busy"}});
  at(10s, {ActivityEdge{kA, false, 3s}});
  names.clear();
  for (const Figure& figure : find(Kind::kWithdraw)->figures) names.push_back(figure.name);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"gap_cost_ns", "gaps_known", "idle_ns"}));
}

TEST(Backoff, DoublesUpToItsCapWithinTheSpread) {
  for (int failures = 1; failures < 40; ++failures) {
    Duration plain = std::min<Duration>(Duration(250ms) * (1LL << std::min(failures - 1, 20)), 10s);
    Duration pause = backoff(250ms, 10s, failures, static_cast<std::uint64_t>(failures));
    EXPECT_GE(pause, plain * 4 / 5);
    EXPECT_LE(pause, plain * 6 / 5);
  }
}

}  // namespace
}  // namespace plexrl::nodemgr::policy
