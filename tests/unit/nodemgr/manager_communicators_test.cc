#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

constexpr wire::Id128 kComm{7, 11};

/// Two processes of one job, each with a GPU, that are about to be ranks of a communicator.
class CommunicatorsTest : public TwoGpuTest {
 protected:
  FakeJob job_ = admit(100 * kMiB, "a");
  FakeProcess a_ = join_with(job_, {0}, 10 * kMiB);
  FakeProcess b_ = join_with(job_, {1}, 10 * kMiB);

  void be_rank(FakeProcess& process) {
    process.peer.send(Type::kCommJoin, wire::CommRef{kComm}, 5);
    pump();
    EXPECT_EQ(process.peer.expect<wire::CommRef>(Type::kCommJoined).comm, kComm);
  }
  /// Both are ranks, and have been told to meet; they have submitted nothing.
  void make_them_meet() {
    be_rank(a_);
    be_rank(b_);
    a_.peer.send(Type::kCommWaits, wire::CommRef{kComm}, 0);
    pump();
    for (FakeProcess* process : {&a_, &b_}) {
      EXPECT_EQ(process->peer.expect<wire::CommMode>(Type::kCommMode).mode, wire::kMeets);
      say(*process, 0, false);
    }
  }
  void say(FakeProcess& process, std::uint64_t submitted, bool is_outstanding) {
    process.peer.send(Type::kCommAt, wire::CommAt{kComm, submitted, is_outstanding ? 1u : 0u, 0},
                      0);
    pump();
  }
  void meet(FakeProcess& process, std::uint64_t number) {
    process.peer.send(Type::kCommMeet, wire::CommAt{kComm, number, 0, 0}, number + 100);
    pump();
  }
  void expect_met(FakeProcess& process) {
    EXPECT_EQ(process.peer.expect<wire::CommRef>(Type::kCommMet).comm, kComm);
  }
  std::size_t gangs() { return admin("jobs")["jobs"][0]["gangs"].size(); }
};

TEST_F(CommunicatorsTest, RanksOfOneAreOneGangAndGetTheirGpusTogether) {
  EXPECT_EQ(gangs(), 2u);
  be_rank(a_);
  EXPECT_EQ(gangs(), 2u);
  be_rank(b_);
  EXPECT_EQ(gangs(), 1u);
  a_.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  EXPECT_EQ(a_.peer.expect<wire::Grant>(Type::kGrant).gpus, 3u);
  EXPECT_EQ(b_.peer.expect<wire::Grant>(Type::kGrant).gpus, 3u);
}

TEST_F(CommunicatorsTest, AnotherJobsRankOfThatNameIsAnother) {
  FakeJob other = admit(100 * kMiB, "b");
  FakeProcess c = join_with(other, {1}, 10 * kMiB);
  be_rank(a_);
  be_rank(c);
  EXPECT_EQ(admin("jobs")["jobs"].size(), 2u);
  EXPECT_EQ(gangs(), 2u);
}

TEST_F(CommunicatorsTest, WhoHoldsAPartOnlyGivesItBackBeforeItIsARank) {
  run(a_);
  FakeJob other = admit(100 * kMiB, "b");
  FakeProcess c = join_with(other, {1}, 10 * kMiB);
  run(c, 2);
  be_rank(b_);
  a_.peer.send(Type::kCommJoin, wire::CommRef{kComm}, 5);
  pump();
  // A lease that goes on, over what it had; then that is taken back.
  EXPECT_EQ(a_.peer.expect<wire::Grant>(Type::kGrant).gpus, 1u);
  b_.peer.expect<wire::Grant>(Type::kGrant);
  for (FakeProcess* process : {&a_, &b_}) {
    const auto withdraw = process->peer.expect<wire::Withdraw>(Type::kWithdraw);
    process->peer.send(Type::kDrained, wire::Drained{withdraw.epoch, withdraw.attempt, 0, 0}, 0);
  }
  pump();
  a_.peer.expect<wire::LeaseRef>(Type::kRevoked);
  // With none of them it may go on: its GPUs come together.
  EXPECT_EQ(a_.peer.expect<wire::CommRef>(Type::kCommJoined).comm, kComm);
}

TEST_F(CommunicatorsTest, ThoseWhoMeetAreApartUntilAllHaveCome) {
  make_them_meet();
  EXPECT_EQ(gangs(), 2u);
  meet(a_, 1);
  EXPECT_FALSE(a_.peer.next());
  EXPECT_EQ(gangs(), 2u);
  meet(b_, 1);
  expect_met(a_);
  expect_met(b_);
  EXPECT_EQ(gangs(), 1u);
  say(a_, 1, false);
  EXPECT_EQ(gangs(), 1u) << "the other's operation is under way";
  say(b_, 1, false);
  EXPECT_EQ(gangs(), 2u);
}

TEST_F(CommunicatorsTest, WhoHasSubmittedItAlreadyIsNotWaitedFor) {
  make_them_meet();
  say(b_, 1, true);  // from before it was told to meet
  meet(a_, 1);
  expect_met(a_);
  EXPECT_EQ(gangs(), 1u);
}

TEST_F(CommunicatorsTest, WhoLeavesOrDiesIsNotWaitedFor) {
  make_them_meet();
  meet(a_, 1);
  b_.peer.send(Type::kCommLeave, wire::CommRef{kComm}, 0);
  pump();
  expect_met(a_);
  b_.peer.send(Type::kCommJoin, wire::CommRef{kComm}, 5);
  pump();
  b_.peer.expect<wire::CommMode>(Type::kCommMode);
  b_.peer.expect<wire::CommRef>(Type::kCommJoined);
  say(b_, 0, false);
  say(a_, 1, false);
  meet(a_, 2);
  EXPECT_FALSE(a_.peer.next());
  b_.peer.kill();
  std::optional<Packet> packet;
  pump_until_readable(a_.peer, packet);
  EXPECT_EQ(packet->type, Type::kCommMet);
}

TEST_F(CommunicatorsTest, LeasesGoOnWhenGangsPartAndMeetAgain) {
  make_them_meet();
  const wire::Grant first = run(a_, 1);
  const wire::Grant second = run(b_, 2);
  meet(a_, 1);
  meet(b_, 1);
  const auto united = a_.peer.expect<wire::Grant>(Type::kGrant);
  EXPECT_GT(united.epoch, std::max(first.epoch, second.epoch));
  EXPECT_EQ(united.gpus, 3u);
  EXPECT_EQ(b_.peer.expect<wire::Grant>(Type::kGrant).epoch, united.epoch);
  expect_met(a_);
  expect_met(b_);
  say(a_, 1, false);
  say(b_, 1, false);
  EXPECT_EQ(a_.peer.expect<wire::Grant>(Type::kGrant).gpus, 1u);
  EXPECT_EQ(b_.peer.expect<wire::Grant>(Type::kGrant).gpus, 2u);
}

TEST_F(CommunicatorsTest, NobodyIsWaitedForLongerThanTheJoinWait) {
  make_them_meet();
  meet(a_, 1);
  EXPECT_FALSE(a_.peer.next());
  std::optional<Packet> packet;
  pump_until_readable(a_.peer, packet);
  EXPECT_EQ(packet->type, Type::kCommMet);
  EXPECT_EQ(gangs(), 1u) << "its operation waits for the other's GPU";
}

TEST_F(CommunicatorsTest, ShortWaitsEndTheMeetings) {
  make_them_meet();
  std::uint64_t number = 0;
  for (bool meets = true; meets && number < 10'000;) {
    meet(a_, ++number);
    meet(b_, number);
    for (FakeProcess* process : {&a_, &b_}) {
      expect_met(*process);
      say(*process, number, false);
      for (auto packet = process->peer.next(); packet; packet = process->peer.next())
        meets &= packet->type != Type::kCommMode;
    }
  }
  EXPECT_LT(number, 10'000u);
  EXPECT_EQ(gangs(), 1u);
}

TEST_F(CommunicatorsTest, WhatGraphsContainKeepsTheRanksTogether) {
  make_them_meet();
  a_.peer.send(Type::kCommStays, wire::CommRef{kComm}, 9);
  pump();
  EXPECT_EQ(a_.peer.expect<wire::CommMode>(Type::kCommMode).mode, wire::kTogether);
  EXPECT_EQ(b_.peer.expect<wire::CommMode>(Type::kCommMode).mode, wire::kTogether);
  a_.peer.expect<wire::CommRef>(Type::kCommJoined);
  EXPECT_EQ(gangs(), 1u);
  b_.peer.send(Type::kCommWaits, wire::CommRef{kComm}, 0);
  pump();
  EXPECT_FALSE(b_.peer.next());
}

TEST_F(CommunicatorsTest, AWrongCountCostsTheConnection) {
  be_rank(a_);
  a_.peer.send(Type::kCommAt, wire::CommAt{kComm, 1, 2, 0}, 0);
  pump();
  a_.peer.expect<wire::Error>(Type::kError);
  EXPECT_TRUE(a_.peer.is_cut_off());
}

}  // namespace
}  // namespace plexrl::nodemgr::test
