// A gang that is to be checkpointed, up to the moment at which its processes are out of the driver:
// what the driver then does is tests/integration/run_checkpoint.py's.

#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

class CheckpointTest : public ManagerTest {
 protected:
  CheckpointTest() {
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
    run(*process_);
    report_idle(*process_);
  }
  /// Of 992 MiB for jobs it leaves 64, which are set aside for its process: there is no room for
  /// the context of another.
  FakePeer queue_second() {
    FakePeer runner(socket());
    runner.send(Type::kJobSubmit, job_submit(928 * kMiB, "second"));
    pump();
    runner.expect<wire::JobNotice>(Type::kJobQueued);
    return runner;
  }
  /// The next packet of this type; others are dropped.
  template <typename Body>
  Body wait_for(Type type) {
    for (;;) {
      std::optional<Packet> packet;
      pump_until_readable(process_->peer, packet);
      if (!packet) return {};
      Body body{};
      if (packet->type != type) continue;
      EXPECT_TRUE(packet->read(body));
      return body;
    }
  }
  nlohmann::json job() { return admin("jobs")["jobs"][0]; }

  std::optional<FakeJob> job_;
  std::optional<FakeProcess> process_;
};

TEST_F(CheckpointTest, AProcessThatRefusesIsBackAndItsJobSaysWhy) {
  start_idle_job();
  EXPECT_EQ(job()["gangs"][0]["checkpoint"], "here");
  FakePeer second = queue_second();
  const auto withdraw = wait_for<wire::Withdraw>(Type::kWithdraw);
  wire::Drained drained{withdraw.epoch, withdraw.attempt, 0, 0};
  process_->peer.send(Type::kDrained, drained, 0);
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

}  // namespace
}  // namespace plexrl::nodemgr::test
