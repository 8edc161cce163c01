// Whose memory leaves for whom.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nodemgr/policy/cost.h"
#include "tests/unit/nodemgr/policy_fixture.h"

namespace plexrl::nodemgr::policy {
namespace {

TEST_F(PolicyTest, OnlyAsManyBytesLeaveAsTheNewcomerLacks) {
  gang(kA, 1, 700);
  gang(kB, 1, 700);
  runs(kA, 700);
  at(5s, {ActivityEdge{kA, false, 4s}, WantsChanged{kB, true, 5s}});
  step_with({GangDrained{kA, find(Kind::kWithdraw)->attempt}});
  ASSERT_NE(find(Kind::kRevoke), nullptr);
  const Decision* evict = find(Kind::kEvict);
  ASSERT_NE(evict, nullptr);
  EXPECT_EQ(evict->gang, kA);
  EXPECT_EQ(evict->bytes, 400);
}

TEST_F(PolicyTest, ANewcomerLoadsWhileOthersLeave) {
  gang(kA, 1, 700);
  gang(kB, 1, 700);
  gang(kC, 1, 100);
  state.find(kA)->memory[0].resident = 700;
  state.find(kC)->memory[0].resident = 50;
  state.find(kC)->lease_ended = 1s;
  at(2s, {WantsChanged{kB, true, 2s}});
  ASSERT_NE(find(Kind::kEvict), nullptr);
  EXPECT_EQ(find(Kind::kEvict)->gang, kA);
  const Decision* const grant = find(Kind::kGrant);
  ASSERT_NE(grant, nullptr);
  EXPECT_EQ(grant->gang, kB);
  EXPECT_FALSE(grant->run_now);
  EXPECT_THAT(grant->figures, ::testing::Contains(Figure{"leaving_bytes", 450}));
  // Long without progress: the driver refuses what has not left yet, nobody else has to leave.
  at(4s, {LacksMemory{kB}});
  EXPECT_EQ(find(Kind::kEvict), nullptr);
  step_with({MemoryChanged{kA, 0, 700, 0, 250}, GangEvicted{kA, 0, false, 450, 1ms}});
  step_with({MemoryChanged{kB, 0, 700, 0, 650}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  step_with({GangLoaded{kB, 700, 1ms}});
  EXPECT_NE(find(Kind::kRun), nullptr);
}

TEST_F(PolicyTest, ASilentVictimDoesNotBlockTheGpuForOthers) {
  gang(kA, 1, 700);
  gang(kB, 1, 700);
  gang(kC, 1, 0);
  state.find(kA)->memory[0].resident = 700;
  at(2s, {WantsChanged{kB, true, 2s}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  at(3s, {WantsChanged{kC, true, 3s}, MemoryChanged{kB, 0, 700, 0, 300}});
  EXPECT_EQ(find(Kind::kWithdraw), nullptr);
  at(state.find(kA)->memory[0].evict_deadline);  // it was stopped, say
  ASSERT_NE(find(Kind::kWithdraw), nullptr);
  EXPECT_EQ(find(Kind::kWithdraw)->gang, kB);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "no room");
  step_with({GangDrained{kB, find(Kind::kWithdraw)->attempt}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  EXPECT_EQ(find(Kind::kGrant)->gang, kC);
  EXPECT_LT(state.find(kB)->service, 1s) << "it has not run";
}

TEST_F(PolicyTest, ALoadThatTheDriverRefusesWithNobodyToEvictLetsOthersRun) {
  gang(kA, 1, 700);
  gang(kB, 1, 700);
  // B's memory is out; of what else it has in the driver by now the figures know nothing.
  runs(kA, 700);
  state.find(kA)->memory[0].resident = 500;
  state.find(kA)->phase = Phase::kLoading;
  step_with({WantsChanged{kB, true, now}});
  const Instant begun = now;
  for (Instant time = begun; time < begun + 1900ms; time += 100ms) {
    at(time, {LacksMemory{kA}});
    ASSERT_EQ(find(Kind::kWithdraw), nullptr) << time.count();
  }
  // A single report of progress begins it anew.
  step_with({MemoryChanged{kA, 0, 700, 0, 600}});
  const Instant refused = now + 100ms;
  Instant time = refused;
  for (; find(Kind::kWithdraw) == nullptr; time += 100ms) {
    ASSERT_LT(time, refused + 10s);
    at(time, {LacksMemory{kA}});
  }
  EXPECT_GE(now, refused + 2s);
  EXPECT_EQ(find(Kind::kWithdraw)->gang, kA);
  EXPECT_EQ(find(Kind::kWithdraw)->reason, "no room");
  step_with({GangDrained{kA, find(Kind::kWithdraw)->attempt}, WantsChanged{kA, true, now}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  EXPECT_EQ(find(Kind::kGrant)->gang, kB);
  EXPECT_FALSE(state.find(kA)->lacks_memory);
}

TEST_F(PolicyTest, ALoadThatTheDriverRefusesWhileOthersCanLeaveGoesOn) {
  gang(kA, 1, 700);
  gang(kB, 1, 200);
  state.find(kB)->memory[0].resident = 200;
  step_with({WantsChanged{kA, true, now}});
  ASSERT_EQ(state.find(kA)->phase, Phase::kLoading);
  step_with({LacksMemory{kA}});
  ASSERT_NE(find(Kind::kEvict), nullptr);
  EXPECT_EQ(find(Kind::kEvict)->gang, kB);
  for (const Instant end = state.find(kB)->memory[0].evict_deadline; now < end;) {
    at(now + 100ms, {LacksMemory{kA}});
    if (now < end) {
      ASSERT_EQ(find(Kind::kWithdraw), nullptr) << now.count();
    }
  }
}

TEST_F(PolicyTest, ASwitchCostsTheLongerOfOutAndIn) {
  state.gpus[0].out_ns_per_byte = 1e6;
  state.gpus[0].in_ns_per_byte = 1e6;
  gang(kA, 1, 1000);
  gang(kB, 1, 500);
  state.find(kA)->memory[0].resident = 1000;
  // What comes in last waits for what leaves last, which at these sizes is all of it.
  EXPECT_NEAR(switch_cost(state, *state.find(kA), *state.find(kB)).count(), 1e9, 1e6);
  state.gpus[0].usable = 1'000'000'000;
  state.find(kA)->memory[0] = {1'000'000'000, 0, 1'000'000'000};
  state.find(kB)->memory[0] = {500'000'000, 0, 0};
  state.gpus[0].out_ns_per_byte = state.gpus[0].in_ns_per_byte = 1;
  EXPECT_NEAR(switch_cost(state, *state.find(kA), *state.find(kB)).count(), 534e6, 1e6);
}

TEST_F(PolicyTest, WhatLeavesWithoutACopySaysNothingOfTheLinkAndCostsLittle) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  state.gpus[0].usable = 4 * kGiB;
  gang(kA, 1, 3 * kGiB);
  gang(kB, 1, 3 * kGiB);
  state.find(kA)->memory[0].resident = 3 * kGiB;
  const double before = state.gpus[0].out_ns_per_byte;
  const Duration full = switch_cost(state, *state.find(kA), *state.find(kB));
  // 32 MiB are copied, and the rest consists of one word each: that takes three seconds.
  step_with({GangEvicted{kA, 0, false, 32 << 20, 3s, kGiB}});
  EXPECT_EQ(state.gpus[0].out_ns_per_byte, before);
  for (int i = 0; i < 9; ++i) step_with({GangEvicted{kA, 0, false, 32 << 20, 3s, kGiB}});
  EXPECT_LT(return_cost(state, *state.find(kA)), full);
  const Duration cheap = switch_cost(state, *state.find(kA), *state.find(kB));
  EXPECT_GT(cheap, full / 20) << "it is not free either";
  // When most of it is copied again, that is what it costs.
  for (int i = 0; i < 9; ++i) {
    step_with({GangEvicted{kA, 0, false, kGiB, Duration(kGiB), 1 << 20}});
  }
  EXPECT_EQ(state.gpus[0].out_ns_per_byte, 1.0);
  EXPECT_GT(switch_cost(state, *state.find(kA), *state.find(kB)), full);
}

TEST_F(PolicyTest, WhoseMemoryIsLeavingGetsNoLeaseBeforeItHasLeft) {
  gang(kA, 1, 700);
  gang(kB, 1, 700);
  state.find(kA)->memory[0].resident = 700;
  at(2s, {WantsChanged{kB, true, 2s}});
  ASSERT_NE(find(Kind::kEvict), nullptr);
  // The newcomer goes away; all that gang A lacks is room that it has.
  step_with({GangGone{kB}, WantsChanged{kA, true, 2s}});
  EXPECT_EQ(find(Kind::kGrant), nullptr);
  ASSERT_NE(find(Kind::kWait), nullptr);
  EXPECT_EQ(find(Kind::kWait)->reason, "its own memory is still leaving");
  // Not even when it answers later than anybody waits for.
  at(100s);
  EXPECT_EQ(find(Kind::kGrant), nullptr);
  step_with({MemoryChanged{kA, 0, 700, 0, 300}, GangEvicted{kA, 0, false, 400, 1ms}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  EXPECT_FALSE(find(Kind::kGrant)->run_now);
}

TEST_F(PolicyTest, WhoHasNotAnsweredIsNotAskedToLeaveAgain) {
  gang(kA, 1, 800);
  gang(kB, 1, 800);
  state.find(kA)->memory[0].resident = 800;
  at(2s, {WantsChanged{kB, true, 2s}});
  ASSERT_NE(find(Kind::kEvict), nullptr);
  for (Instant time = 3s; time < 60s; time += 1s) {
    at(time);
    EXPECT_EQ(find(Kind::kEvict), nullptr);
  }
}

TEST_F(PolicyTest, TheLeastRecentlyUsedGangIsEvictedFirst) {
  for (GangId id : {kA, kB}) gang(id, 1, 450);
  gang(kC, 1, 450);
  state.find(kA)->memory[0].resident = 450;
  state.find(kB)->memory[0].resident = 450;
  state.find(kA)->lease_ended = 2s;
  state.find(kB)->lease_ended = 1s;
  at(3s, {WantsChanged{kC, true, 3s}});
  ASSERT_NE(find(Kind::kEvict), nullptr);
  EXPECT_EQ(find(Kind::kEvict)->gang, kB);
  EXPECT_EQ(find(Kind::kEvict)->bytes, 350);
}

TEST_F(PolicyTest, BytesOfEndedProcessesAreWaitedForAndNobodyElseLeaves) {
  gang(kA, 1, 800);
  gang(kB, 1, 300);
  state.find(kA)->memory[0].resident = 200;
  step_with({GpuChanged{0, 1000, false, 700}, WantsChanged{kB, true, now}});
  EXPECT_EQ(find(Kind::kGrant), nullptr);
  EXPECT_EQ(find(Kind::kEvict), nullptr);
  step_with({GpuChanged{0, 1000, false, 0}});
  EXPECT_NE(find(Kind::kGrant), nullptr);
  EXPECT_EQ(find(Kind::kEvict), nullptr);
}

TEST_F(PolicyTest, AHolderThatGrowsMakesOthersLeave) {
  gang(kA, 1, 0);
  gang(kB, 1, 800);
  state.find(kB)->memory[0].resident = 800;
  step_with({WantsChanged{kA, true, now}});
  step_with({MemoryChanged{kA, 0, 500, 0, 0}});
  ASSERT_NE(find(Kind::kEvict), nullptr);
  EXPECT_EQ(find(Kind::kEvict)->gang, kB);
  EXPECT_EQ(find(Kind::kEvict)->bytes, 300);
}

TEST_F(PolicyTest, AHolderThatTheDriverRefusesMemoryMakesOthersLeaveOnce) {
  gang(kA, 1, 0);
  gang(kB, 1, 500);
  state.find(kB)->memory[0].resident = 500;
  step_with({WantsChanged{kA, true, now}});
  at(10s, {LacksMemory{kA}});
  ASSERT_NE(find(Kind::kEvict), nullptr);
  EXPECT_EQ(find(Kind::kEvict)->gang, kB);
  step_with({MemoryChanged{kB, 0, 500, 0, 0}, GangEvicted{kB}});
  at(20s);
  EXPECT_EQ(find(Kind::kEvict), nullptr);
}

TEST_F(PolicyTest, AProcessThatCameBackGetsANewLeaseWithItsGang) {
  gang(kA, 1, 0);
  step_with({WantsChanged{kA, true, now}});
  step_with({GangReturned{kA}});
  ASSERT_NE(find(Kind::kGrant), nullptr);
  EXPECT_FALSE(find(Kind::kGrant)->run_now);
  step_with({GangLoaded{kA}});
  EXPECT_NE(find(Kind::kRun), nullptr);
}

}  // namespace
}  // namespace plexrl::nodemgr::policy
