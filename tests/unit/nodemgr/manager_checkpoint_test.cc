// What the manager makes of gangs that are checkpointed. What the driver does meanwhile, here no
// more than what a script instead of plexrl-checkpoint says, is
// tests/integration/run_checkpoint.py's.

#include <gmock/gmock.h>

#include <functional>

#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

using ::testing::HasSubstr;

class CheckpointTest : public ManagerTest {
 protected:
  explicit CheckpointTest(int gpus = 1) : ManagerTest(gpus) {
    EXPECT_TRUE(values_.set("policy.checkpoint_after", "1ns", "test").ok());
    manager_->reload(values_);
  }
  /// A job with --evict=checkpoint that has run, and is idle with its lease.
  void start_idle_job() {
    job_.emplace(FakeJob{FakePeer(socket()), {}, {}});
    wire::JobSubmit submit = job_submit(300 * kMiB, "idle");
    submit.flags = wire::kJobCheckpoint;
    job_->runner.send(Type::kJobSubmit, submit);
    pump();
    job_->admitted = job_->runner.expect<wire::JobAdmitted>(Type::kJobAdmitted);
    process_.emplace(join_with(*job_, {0}, 100 * kMiB));
    // With a MiB for the context it is what the room of others depends on.
    process_->peer.send(Type::kCharge, wire::Charge{0, 1, 150 * kMiB});
    pump();
    process_->peer.expect<wire::Charged>(Type::kCharged);
    run(*process_);
    report_idle(*process_);
  }
  /// Of 992 MiB for jobs it leaves 64, which are set aside for its process: there is no room for
  /// the context of another.
  FakePeer queue_second(std::uint64_t gpus = 0, std::uint64_t bytes = 928 * kMiB) {
    FakePeer runner(socket());
    wire::JobSubmit submit = job_submit(bytes, "second");
    submit.gpus = gpus;
    runner.send(Type::kJobSubmit, submit);
    pump();
    runner.expect<wire::JobNotice>(Type::kJobQueued);
    return runner;
  }
  /// The next packet of this type; others are dropped.
  template <typename Body>
  Body wait_for(Type type, FakePeer& peer) {
    for (;;) {
      std::optional<Packet> packet;
      pump_until_readable(peer, packet);
      if (!packet) return {};
      Body body{};
      if (packet->type != type) continue;
      EXPECT_TRUE(packet->read(body));
      return body;
    }
  }
  template <typename Body>
  Body wait_for(Type type) {
    return wait_for<Body>(type, process_->peer);
  }
  nlohmann::json job() {
    const nlohmann::json answer = admin("jobs");
    for (const nlohmann::json& one : answer["jobs"]) {
      if (one["name"] == "idle") return one;
    }
    return {};
  }
  nlohmann::json gang() { return job()["gangs"][0]; }
  void serve_until(const std::function<bool()>& condition) {
    while (!condition()) manager_->run_once(std::chrono::nanoseconds(-1));
  }
  void drains(FakePeer& peer) {
    const auto withdraw = wait_for<wire::Withdraw>(Type::kWithdraw, peer);
    wire::Drained drained{withdraw.epoch, withdraw.attempt, 0, 0};
    peer.send(Type::kDrained, drained, 0);
  }
  /// Does as it is asked, up to the moment at which it is out of the driver.
  void empties() {
    drains(process_->peer);
    const auto evict = wait_for<wire::Evict>(Type::kEvict);
    wire::Evicted evicted{};
    evicted.freed_bytes = evicted.moved_bytes = evict.bytes;
    process_->peer.send(Type::kEvicted, evicted, 0);
  }
  void leaves() {
    empties();
    wire::LeftGpu left{};
    left.operation = wait_for<wire::LeaveGpu>(Type::kLeaveGpu).operation;
    process_->peer.send(Type::kLeftGpu, left, 0);
  }
  /// The idle job leaves for a second one.
  void start_with_idle_job_away(std::uint64_t second_bytes = 928 * kMiB) {
    set_helper("exit 0");
    start_idle_job();
    second_.emplace(queue_second(0, second_bytes));
    leaves();
    serve_until([&] { return gang()["checkpoint"] == "away"; });
  }
  void end_second() {
    const auto jobs = admin("jobs")["jobs"].size();
    second_->kill();
    serve_until([&] { return admin("jobs")["jobs"].size() < jobs; });
  }
  /// To the next manager, without a lease.
  void come_back(FakeProcess& process) {
    process.peer.connect_again(socket());
    wire::Hello hello = hello_for(job_->admitted, process.peer);
    hello.flags = wire::kHelloResume;
    hello.session = process.welcome.session;
    process.peer.send(Type::kHello, hello);
    pump();
    process.peer.expect<wire::Welcome>(Type::kWelcome);
    wire::ResumeState state{};
    state.gpu_count = 1;
    state.uuid = FakeGpus::uuid(0);
    process.peer.send(Type::kResumeState, state, 0);
    pump();
  }
  static std::string text_of(const char* text) { return text; }
  void want(FakePeer& peer, std::uint64_t gpus = 1) {
    peer.send(Type::kWantLease, wire::WantLease{gpus, 0}, 0);
    pump();
  }
  /// The driver shows no room, and no process to which that is due.
  void fill_gpu() { use_[0].used_bytes = 1024 * kMiB; }

  std::optional<FakeJob> job_;
  std::optional<FakeProcess> process_;
  std::optional<FakePeer> second_;  ///< its plexrl-run
};

class TwoGpuCheckpointTest : public CheckpointTest {
 protected:
  TwoGpuCheckpointTest() : CheckpointTest(2) {}
};

TEST_F(CheckpointTest, AProcessThatRefusesIsBackAndItsJobSaysWhy) {
  start_idle_job();
  EXPECT_EQ(job()["gangs"][0]["checkpoint"], "here");
  FakePeer second = queue_second();
  drains(process_->peer);
  const auto evict = wait_for<wire::Evict>(Type::kEvict);
  EXPECT_EQ(evict.bytes, 100 * kMiB);
  EXPECT_EQ(job()["gangs"][0]["checkpoint"], "leaving");
  wire::Evicted evicted{};
  evicted.freed_bytes = evicted.moved_bytes = evict.bytes;
  process_->peer.send(Type::kEvicted, evicted, 0);
  const auto leave = wait_for<wire::LeaveGpu>(Type::kLeaveGpu);
  wire::LeftGpu left{};
  left.operation = leave.operation;
  left.refused = 1;
  std::snprintf(left.reason, sizeof left.reason, "a thread is inside the driver");
  process_->peer.send(Type::kLeftGpu, left, 0);
  std::optional<Packet> packet;
  pump_until_readable(process_->peer, packet);
  ASSERT_TRUE(packet.has_value());
  EXPECT_EQ(packet->type, Type::kBackOnGpu);
  EXPECT_EQ(job()["gangs"][0]["checkpoint"], "here");
  EXPECT_NE(job()["checkpoint_refused"].get<std::string>().find("inside the driver"),
            std::string::npos);
}

TEST_F(CheckpointTest, AJobThatDidNotAskForItStays) {
  FakeJob job = admit(300 * kMiB);
  FakeProcess process = join_with(job, {0}, 100 * kMiB);
  run(process);
  report_idle(process);
  FakePeer second = queue_second();
  pump();
  EXPECT_FALSE(process.peer.next().has_value());
}

TEST_F(CheckpointTest, AJobThatIsAwayComesBackWhenThereIsRoomAndThenGetsItsLease) {
  start_with_idle_job_away();
  want(process_->peer);
  EXPECT_EQ(gang()["checkpoint"], "away");
  end_second();
  wait_for<wire::Grant>(Type::kGrant);
  EXPECT_EQ(gang()["checkpoint"], "here");
}

TEST_F(CheckpointTest, AGangWhoseLeaseEndsBeforeItIsBackGetsAnother) {
  start_with_idle_job_away();
  end_second();
  fill_gpu();
  want(process_->peer);
  serve_until([&] { return gang()["state"] == "loading"; });
  // Somebody else takes what was to be loaded into: "no room".
  show({{1, 1024 * kMiB}});
  manager_->look_at_gpus();
  serve_until([&] { return gang()["state"] == "waiting"; });
  show({});
  manager_->look_at_gpus();
  wait_for<wire::Grant>(Type::kGrant);
  EXPECT_EQ(gang()["checkpoint"], "here");
}

TEST_F(CheckpointTest, AJobInTheQueueIsAdmittedAsSoonAsTheRoomOfTheOneThatReturnsIsBooked) {
  FakeJob holding = admit(100 * kMiB, "holding");
  start_with_idle_job_away(860 * kMiB);
  FakeProcess holder = join_with(holding, {0}, 0);
  run(holder);
  want(process_->peer);
  FakePeer third(socket());
  third.send(Type::kJobSubmit, job_submit(10 * kMiB, "third"));
  pump();
  EXPECT_THAT(text_of(third.expect<wire::JobNotice>(Type::kJobQueued).text), HasSubstr("idle"));
  end_second();
  serve_until([&] { return gang()["checkpoint"] == "returning"; });
  bool is_admitted = false;  // by now, not when the GPUs are looked at the next time
  while (const std::optional<Packet> packet = third.next()) {
    is_admitted |= packet->type == Type::kJobAdmitted;
  }
  EXPECT_TRUE(is_admitted);
}

TEST_F(CheckpointTest, AGangThatIsToReturnAndWantsNothingAnyMoreStaysAway) {
  FakeJob holding = admit(100 * kMiB, "holding");
  start_with_idle_job_away(860 * kMiB);
  FakeProcess holder = join_with(holding, {0}, 0);
  run(holder);
  want(process_->peer);
  end_second();
  serve_until([&] { return gang()["checkpoint"] == "returning"; });
  process_->peer.disconnect();
  serve_until([&] { return gang()["checkpoint"] == "away"; });
  FakeJob third = admit(900 * kMiB, "third");  // in its room
}

TEST_F(CheckpointTest, APausedGangStaysAwayAndKeepsNobodyWaiting) {
  start_with_idle_job_away();
  tell({{"verb", "pause"}, {"job", job()["id"]}});
  want(process_->peer);
  end_second();
  admit(928 * kMiB, "third");
  EXPECT_EQ(gang()["checkpoint"], "away");
}

TEST_F(CheckpointTest, WhereTheDriverShowsNoRoomTheLeaseGoesToOthersMeanwhile) {
  manager_->options().room_patience = std::chrono::nanoseconds(1);
  FakeJob other_job = admit(100 * kMiB, "other");
  start_with_idle_job_away(860 * kMiB);
  end_second();
  fill_gpu();
  want(process_->peer);
  serve_until([&] { return !job()["checkpoint_refused"].is_null(); });
  EXPECT_THAT(job()["checkpoint_refused"].get<std::string>(), HasSubstr("less free"));
  serve_until([&] { return gang()["state"] == "waiting"; });
  FakeProcess other = join_with(other_job, {0}, 0);
  run(other);
  report_idle(other);
  use_[0].used_bytes = 0;
  drains(other.peer);
  wait_for<wire::Grant>(Type::kGrant);
  EXPECT_TRUE(job()["checkpoint_refused"].is_null());
}

TEST_F(CheckpointTest, WhereAReturnFailsTheLeaseGoesToOthersMeanwhile) {
  start_with_idle_job_away();
  end_second();
  set_helper("echo the driver is broken; exit 1");
  want(process_->peer);
  serve_until([&] { return !job()["checkpoint_refused"].is_null(); });
  EXPECT_EQ(job()["checkpoint_refused"], "the driver is broken");
  serve_until([&] { return gang()["state"] == "waiting"; });
  set_helper("exit 0");
  wait_for<wire::Grant>(Type::kGrant);
  EXPECT_EQ(gang()["checkpoint"], "here");
}

TEST_F(CheckpointTest, AnUndoThatFailsIsTriedAgain) {
  set_helper("echo $2; exit 1");
  start_idle_job();
  FakePeer second = queue_second();
  leaves();
  serve_until([&] { return !job()["checkpoint_refused"].is_null(); });
  EXPECT_EQ(job()["checkpoint_refused"], "leave; and it can't be undone: return");
  set_helper("exit 0");
  serve_until([&] { return gang()["checkpoint"] == "here"; });
  want(process_->peer);
  wait_for<wire::Grant>(Type::kGrant);
}

TEST_F(CheckpointTest, WhenTheOneThatWasLeavingDiesAfterARestartTheOthersOfItsGangGoOn) {
  start_idle_job();
  FakePeer second = queue_second();
  empties();
  wait_for<wire::LeaveGpu>(Type::kLeaveGpu);
  FakeProcess late = join_with(*job_, {0}, 0);
  crash_manager();
  start_manager();
  process_->peer.kill();
  come_back(late);
  want(late.peer);
  wait_for<wire::Grant>(Type::kGrant, late.peer);
}

TEST_F(CheckpointTest, WhatIsAwayHasItsHostMemoryAfterARestartToo) {
  start_with_idle_job_away();
  end_second();
  crash_manager();
  // The promises of both need 36 MiB of it, what is away more than 250.
  ASSERT_TRUE(values_.set("host.budget", "120MiB", "test").ok());
  start_manager();
  FakePeer third(socket());
  third.send(Type::kJobSubmit, job_submit(728 * kMiB, "third"));
  pump();
  EXPECT_THAT(text_of(third.expect<wire::JobNotice>(Type::kJobQueued).text),
              HasSubstr("host memory"));
}

TEST_F(TwoGpuCheckpointTest, AGangThatWaitsToComeBackHoldsUpNewJobsOfItsOwnGpusOnly) {
  set_helper("exit 0");
  start_idle_job();
  second_.emplace(queue_second(1));
  leaves();
  serve_until([&] { return gang()["checkpoint"] == "away"; });
  want(process_->peer);
  FakePeer here(socket());
  FakePeer elsewhere(socket());
  for (auto [peer, gpus] : {std::pair{&here, 1u}, {&elsewhere, 2u}}) {
    wire::JobSubmit submit = job_submit(10 * kMiB, "more");
    submit.gpus = gpus;
    peer->send(Type::kJobSubmit, submit);
    pump();
  }
  EXPECT_THAT(text_of(here.expect<wire::JobNotice>(Type::kJobQueued).text), HasSubstr("idle"));
  elsewhere.expect<wire::JobAdmitted>(Type::kJobAdmitted);
}

TEST_F(TwoGpuCheckpointTest, AGangThatIsUnitedWithOneThatIsAwayGivesItsLeaseBackFirst) {
  set_helper("exit 0");
  start_idle_job();
  FakeProcess other = join_with(*job_, {1}, 100 * kMiB);
  run(other, 2);
  second_.emplace(queue_second(1));
  leaves();
  serve_until([&] { return gang()["checkpoint"] == "away"; });
  other.peer.send(Type::kAttachGpu, wire::AttachGpu{FakeGpus::uuid(0), 1 << 30, 1 << 20});
  drains(other.peer);
  wait_for<wire::LeaseRef>(Type::kRevoked, other.peer);
  want(other.peer, 3);
  EXPECT_EQ(gang()["state"], "waiting");
  end_second();
  EXPECT_EQ(wait_for<wire::Grant>(Type::kGrant, other.peer).gpus, 3u);
  EXPECT_EQ(wait_for<wire::Grant>(Type::kGrant).gpus, 3u);
}

}  // namespace
}  // namespace plexrl::nodemgr::test
