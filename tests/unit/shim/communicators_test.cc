#include "shim/communicators.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "shim/process.h"
#include "tests/unit/shim/process_fixture.h"

/// A rank's half of docs/architecture.md, "Collectives across gangs". The test plays NCCL, the
/// manager and the other ranks.
namespace plexrl::shim {
namespace {

using testing::ProcessTest;
using Name = Communicators::Name;

const ncclComm_t kComm = reinterpret_cast<ncclComm_t>(0x6000);
const ncclComm_t kOther = reinterpret_cast<ncclComm_t>(0x7000);

Name named(const char* text) {
  ncclUniqueId id{};
  std::strncpy(id.internal, text, sizeof id.internal - 1);
  return Communicators::name_of(id);
}

class CommunicatorsTest : public ProcessTest {
 protected:
  void SetUp() override {
    manager_.features |= wire::kFeatureCommunicators;
    ProcessTest::SetUp();
    hold_lease();
    ASSERT_EQ(shim::cuStreamCreate(&stream_, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    driver_.set_busy(stream_, false);
    EXPECT_EQ(shim::cuStreamDestroy_v2(stream_), CUDA_SUCCESS);
    ProcessTest::TearDown();
  }

  Communicators& all() { return process_.communicators; }
  void become_rank(const Name& name, ncclComm_t comm) {
    all().begin(name);
    all().made(name, comm);
    expect(wire::Type::kCommJoin, name);
  }
  /// The next message of the type is about this communicator.
  void expect(wire::Type type, const Name& name) {
    const auto packet = manager_.wait_for(type);
    Name found{};
    std::memcpy(&found, packet->body.data(), sizeof found);  // all begin with it
    EXPECT_EQ(found, name);
  }
  wire::CommAt at(wire::Type type) {
    const auto packet = manager_.wait_for(type);
    request_ = packet->request;
    return *packet->as<wire::CommAt>();
  }
  void let_go(const Name& name) {
    manager_.send(wire::Type::kCommMet, wire::CommRef{name}, request_);
  }
  /// From now on its ranks meet.
  void have_meet(const Name& name) {
    manager_.send(wire::Type::kCommMode, wire::CommMode{name, wire::kMeets, 0});
    at(wire::Type::kCommAt);
  }
  void operate(ncclComm_t comm, bool is_of_all = true) {
    const Communicators::Call call{comm, stream_, is_of_all};
    all().before(&call);
    launch(stream_);  // NCCL's kernel
    all().after();
  }
  std::thread operate_aside(ncclComm_t comm) {
    return std::thread([this, comm] {
      driver_.set_current(context_);
      const Communicators::Call call{comm, stream_, true};
      all().before(&call);
      has_passed_ = true;
      launch(stream_);
      all().after();
    });
  }

  CUstream stream_ = nullptr;
  std::uint64_t request_ = 0;
  std::atomic<bool> has_passed_{false};
};

TEST_F(CommunicatorsTest, TheManagerKnowsOfEachBeforeNcclDoes) {
  const Name name = named("a");
  all().begin(name);
  EXPECT_TRUE(manager_.has(wire::Type::kCommJoin));
  expect(wire::Type::kCommJoin, name);
  all().not_made(name);  // NCCL has failed
  expect(wire::Type::kCommLeave, name);
  EXPECT_FALSE(all().take(kComm));
}

TEST_F(CommunicatorsTest, WhatHasEndedIsLeft) {
  const Name name = named("a");
  become_rank(name, kComm);
  const auto taken = all().take(kComm);
  ASSERT_TRUE(taken);
  all().not_made(*taken);
  expect(wire::Type::kCommLeave, name);
}

TEST_F(CommunicatorsTest, RanksDeriveTheSameNamesInTheSameOrder) {
  const Name name = named("a");
  become_rank(name, kComm);
  all().made(name, kOther);  // plays another process's, of the same id
  const auto first = all().derive(kComm, 3);
  ASSERT_TRUE(first);
  EXPECT_EQ(first, all().derive(kOther, 3));
  const auto second = all().derive(kComm, 3);
  EXPECT_NE(first, second) << "the second split is another";
  EXPECT_NE(second, all().derive(kOther, 4)) << "so is another color";
  EXPECT_FALSE(all().derive(nullptr, 3));
}

TEST_F(CommunicatorsTest, InAGroupNcclSaysAtTheEndWhoItIs) {
  ncclComm_t good = nullptr, bad = nullptr;
  all().begin(named("good"));
  all().made_in_group(named("good"), &good);
  all().begin(named("bad"));
  all().made_in_group(named("bad"), &bad);
  EXPECT_FALSE(all().take(kComm));
  good = kComm;
  all().group_ended(true);
  expect(wire::Type::kCommLeave, named("bad"));
  EXPECT_TRUE(all().take(kComm));
}

TEST_F(CommunicatorsTest, AWaitForOtherRanksIsToldOnceItIsLong) {
  become_rank(named("a"), kComm);
  operate(kComm);  // ends at once
  driver_.set_busy(stream_, true);
  operate(kComm);
  expect(wire::Type::kCommWaits, named("a"));
  driver_.set_busy(stream_, false);
}

TEST_F(CommunicatorsTest, WhoMeetsWaitsBeforeTheOperationUntilAllHaveCome) {
  const Name name = named("a");
  become_rank(name, kComm);
  operate(kComm);
  have_meet(name);
  for (std::uint64_t number = 2; number <= 3; ++number) {
    has_passed_ = false;
    std::thread other = operate_aside(kComm);
    const wire::CommAt meeting = at(wire::Type::kCommMeet);
    EXPECT_EQ(meeting.submitted, number) << "with this one";
    EXPECT_EQ(meeting.is_outstanding, 0u) << "the one before has ended";
    EXPECT_FALSE(has_passed_);
    let_go(name);
    other.join();
    EXPECT_TRUE(has_passed_);
    // When it has ended the manager learns it: then the gangs may part.
    wire::CommAt told = at(wire::Type::kCommAt);
    while (told.is_outstanding != 0 || told.submitted < number) told = at(wire::Type::kCommAt);
    EXPECT_EQ(told.submitted, number);
  }
}

TEST_F(CommunicatorsTest, AGroupMeetsOnceForEachOfItsCommunicators) {
  const Name names[2] = {named("a"), named("b")};
  become_rank(names[0], kComm);
  become_rank(names[1], kOther);
  for (const Name& name : names) have_meet(name);
  std::thread other([this] {
    driver_.set_current(context_);
    for (const ncclComm_t comm : {kOther, kComm, kOther}) all().collect({comm, stream_, true});
    all().before(nullptr);
    has_passed_ = true;
    launch(stream_);
    all().after();
  });
  // Every rank meets them in the same order, whatever that of its calls.
  Name last{};
  for (int i = 0; i < 2; ++i) {
    const wire::CommAt meeting = at(wire::Type::kCommMeet);
    EXPECT_EQ(meeting.submitted, 1u) << "a group is one kernel of each communicator";
    EXPECT_GT(std::pair(meeting.comm.hi, meeting.comm.lo), std::pair(last.hi, last.lo));
    last = meeting.comm;
    EXPECT_FALSE(has_passed_);
    let_go(meeting.comm);
  }
  other.join();
  EXPECT_FALSE(manager_.has(wire::Type::kCommMeet));
}

TEST_F(CommunicatorsTest, WhatNotAllRanksCountAlikeStaysTogether) {
  become_rank(named("captured"), kComm);
  have_meet(named("captured"));
  ASSERT_EQ(driver.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  operate(kComm);
  expect(wire::Type::kCommStays, named("captured"));
  CUgraph graph = nullptr;
  ASSERT_EQ(driver.cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  operate(kComm);  // does not meet any more
  become_rank(named("sends"), kOther);
  operate(kOther, false);
  expect(wire::Type::kCommStays, named("sends"));
  EXPECT_FALSE(manager_.has(wire::Type::kCommMeet));
}

TEST_F(CommunicatorsTest, SeveralRanksInAProcessStayTogether) {
  const Name name = named("a");
  become_rank(name, kComm);
  all().begin(name);
  expect(wire::Type::kCommStays, name);
  all().made(name, kOther);
  all().not_made(*all().take(kComm));
  EXPECT_FALSE(manager_.has(wire::Type::kCommLeave)) << "one of them is still there";
  all().not_made(*all().take(kOther));
  expect(wire::Type::kCommLeave, name);
}

TEST_F(CommunicatorsTest, WhoeverMeetsGoesOnWhenTheManagerDiesAndTheNextLearnsOfAll) {
  const Name name = named("a");
  become_rank(name, kComm);
  become_rank(named("stays"), kOther);
  operate(kOther, false);
  expect(wire::Type::kCommStays, named("stays"));
  have_meet(name);
  std::thread other = operate_aside(kComm);
  at(wire::Type::kCommMeet);
  manager_.die();
  other.join();
  EXPECT_TRUE(has_passed_);
  manager_.start();
  Name seen[2];
  for (Name& one : seen) one = manager_.wait_for(wire::Type::kCommJoin)->as<wire::CommRef>()->comm;
  EXPECT_NE(seen[0], seen[1]);
  expect(wire::Type::kCommStays, named("stays"));
}

TEST_F(CommunicatorsTest, AnEventIsNotAskedForWhenItsContextHasGone) {
  become_rank(named("a"), kComm);
  driver_.set_busy(stream_, true);
  operate(kComm);
  expect(wire::Type::kCommWaits, named("a"));
  all().context_ends(context_);
  const int destroyed = driver_.calls("cuEventDestroy_v2");
  operate(kComm);  // which makes another
  all().context_ends(context_);
  all().not_made(*all().take(kComm));
  EXPECT_EQ(driver_.calls("cuEventDestroy_v2"), destroyed) << "they went with the context";
  EXPECT_EQ(driver_.calls("cuEventCreate"), 2);
}

}  // namespace
}  // namespace plexrl::shim
