#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <map>

#include "nodemgr/clock.h"
#include "tests/unit/nodemgr/manager_fixture.h"
#include "tests/unit/nodemgr/read_trace.h"

namespace plexrl::nodemgr::test {
namespace {

TEST_F(ManagerTest, TwoGangsExchangeAGpuThatIsTooSmallForBoth) {
  FakeJob job_a = admit(700 * kMiB, "a");
  FakeJob job_b = admit(700 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 700 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 700 * kMiB);
  wire::Grant first = run(a);
  report_idle(a);

  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  wire::Withdraw withdraw{};
  wait_for_withdraw(a, withdraw);
  EXPECT_EQ(withdraw.epoch, first.epoch);
  EXPECT_FALSE(b.peer.next());
  a.peer.send(Type::kDrained, wire::Drained{withdraw.epoch, withdraw.attempt, 0, 0}, 0);
  pump();
  a.peer.expect<wire::LeaseRef>(Type::kRevoked);
  auto evict = a.peer.expect<wire::Evict>(Type::kEvict);
  EXPECT_LT(evict.bytes, 700 * kMiB);
  EXPECT_GT(evict.bytes, 400 * kMiB);
  auto second = b.peer.expect<wire::Grant>(Type::kGrant);  // it loads while the other leaves
  EXPECT_GT(second.epoch, first.epoch);
  EXPECT_EQ(second.flags & wire::kGrantRunNow, 0u);

  wire::Evicted evicted{};
  evicted.freed_bytes = evict.bytes;
  evicted.moved_bytes = evict.bytes;
  evicted.resident_bytes = 700 * kMiB - evict.bytes;
  evicted.start_ns = evicted.end_ns = static_cast<std::uint64_t>(boot_now().count());
  a.peer.send(Type::kEvicted, evicted, 0);
  pump();
  EXPECT_FALSE(b.peer.next());
  wire::Loaded loaded{};
  loaded.epoch = second.epoch;
  loaded.moved_bytes = 700 * kMiB;
  loaded.start_ns = loaded.end_ns = static_cast<std::uint64_t>(boot_now().count());
  b.peer.send(Type::kLoaded, loaded, 0);
  pump();
  b.peer.expect<wire::LeaseRef>(Type::kRun);

  nlohmann::json gpu = admin("gpus")["gpus"][0];
  EXPECT_EQ(gpu["out_bytes"], evict.bytes);
  EXPECT_EQ(gpu["in_bytes"], 700 * kMiB);
  EXPECT_GT(gpu["out_bytes_s"], 0);
  EXPECT_GT(gpu["in_bytes_s"], 0);
  EXPECT_GT(gpu["duty_ratio"], 0);
  nlohmann::json jobs = admin("jobs")["jobs"];
  EXPECT_NEAR(jobs[0]["share_ratio"].get<double>() + jobs[1]["share_ratio"].get<double>(), 1, 1e-6);
  EXPECT_GT(jobs[1]["wait_s"], 0);
}

/// No window of a load ends after the lease that it belongs to.
void expect_loads_within_leases(TraceWriter& trace) {
  trace.flush();
  const TraceRead read = read_trace(bytes_of(trace.run_folder() + "/000000.plxt"));
  std::map<std::uint64_t, std::uint64_t> last_ends;  // by gang
  int loads = 0;
  for (const trace::TraceRecord& record : read.records) {
    if (record.has_lease() && record.lease().state() == "idle") {
      last_ends[record.lease().gang()] = record.at_ns();
    }
  }
  for (const trace::TraceRecord& record : read.records) {
    const trace::PagingRecord& window = record.paging();
    if (!record.has_paging() || window.kind() != trace::PagingRecord::LOAD) continue;
    ++loads;
    EXPECT_LE(window.end_ns(), last_ends[window.gang()]) << window.outcome();
  }
  EXPECT_GT(loads, 0);
}

TEST_F(ManagerTest, ANewcomerWhoseRoomIsKeptAllTheSameGivesTheGpuBack) {
  FakeJob job_a = admit(700 * kMiB, "a");
  FakeJob job_b = admit(700 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 700 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 700 * kMiB);
  run(a);
  report_idle(a);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  wire::Withdraw withdraw{};
  wait_for_withdraw(a, withdraw);
  a.peer.send(Type::kDrained, wire::Drained{withdraw.epoch, withdraw.attempt, 0, 0}, 0);
  pump();
  a.peer.expect<wire::LeaseRef>(Type::kRevoked);
  a.peer.expect<wire::Evict>(Type::kEvict);
  const auto grant = b.peer.expect<wire::Grant>(Type::kGrant);
  wire::Evicted evicted{};
  evicted.failed = 1;
  a.peer.send(Type::kEvicted, evicted, 0);
  pump();
  withdraw = b.peer.expect<wire::Withdraw>(Type::kWithdraw);
  EXPECT_EQ(withdraw.epoch, grant.epoch);
  b.peer.send(Type::kDrained, wire::Drained{withdraw.epoch, withdraw.attempt, 0, 0}, 0);
  pump();
  b.peer.expect<wire::LeaseRef>(Type::kRevoked);
  expect_loads_within_leases(*manager_->node().trace);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  EXPECT_FALSE(b.peer.next()) << "granted without room";
  std::optional<Packet> packet;
  pump_until_readable(a.peer, packet);
  EXPECT_EQ(packet->type, Type::kEvict) << "asked again later";
}

TEST_F(ManagerTest, AProcessThatCannotDrainIsReopenedWithItsGang) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess a1 = join_with(job_a, {0}, 0);
  FakeProcess a2 = join_with(job_a, {0}, 0);
  FakeProcess b = join_with(job_b, {0}, 0);
  wire::Grant grant = run(a1);
  EXPECT_EQ(a2.peer.expect<wire::Grant>(Type::kGrant).epoch, grant.epoch);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  wire::Withdraw withdraw{};
  wait_for_withdraw(a1, withdraw);
  a2.peer.expect<wire::Withdraw>(Type::kWithdraw);
  a2.peer.send(Type::kDrained, wire::Drained{grant.epoch, withdraw.attempt, 0, 0}, 0);
  wire::NotDrained not_drained{grant.epoch, withdraw.attempt, "capture in progress"};
  a1.peer.send(Type::kNotDrained, not_drained, 0);
  pump();
  EXPECT_EQ(a1.peer.expect<wire::LeaseRef>(Type::kReopen).epoch, grant.epoch);
  EXPECT_EQ(a2.peer.expect<wire::LeaseRef>(Type::kReopen).epoch, grant.epoch);
  EXPECT_FALSE(b.peer.next());
}

TEST_F(ManagerTest, TheDeathOfAHolderPassesItsGpuOn) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 0);
  FakeProcess b = join_with(job_b, {0}, 0);
  run(a);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  a.peer.kill();
  std::optional<Packet> packet;
  pump_until_readable(b.peer, packet);
  EXPECT_EQ(packet->type, Type::kGrant);
}

TEST_F(ManagerTest, AHolderThatBecomesAnotherProgramByExecGivesBackWhatItHad) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 60 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 0);
  run(a);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  EXPECT_FALSE(b.peer.next());
  // exec closes the connection; the next program is the same process and knows no session.
  a.peer.connect_again(socket());
  a.peer.send(Type::kHello, hello_for(job_a.admitted, a.peer));
  pump();
  EXPECT_NE(a.peer.expect<wire::Welcome>(Type::kWelcome).session, a.welcome.session);
  b.peer.expect<wire::Grant>(Type::kGrant);
  EXPECT_FALSE(manager_->node().sessions.contains(a.welcome.session));
}

TEST_F(ManagerTest, AnExclusiveGangIsNotWithdrawn) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 0);
  FakeProcess b = join_with(job_b, {0}, 0);
  run(a);
  wire::Exclusive exclusive{};
  set_field(exclusive.reason, "persistent kernel");
  a.peer.send(Type::kExclusive, exclusive, 0);
  report_idle(a);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  nlohmann::json jobs = admin("jobs")["jobs"];
  EXPECT_EQ(jobs[0]["gangs"][0]["exclusive_reason"], "persistent kernel");
  EXPECT_EQ(jobs[1]["gangs"][0]["waits_for"], "job 'a': holder is exclusive");
  EXPECT_EQ(jobs[1]["state"], "waiting");
}

TEST_F(TwoGpuTest, ProcessesThatShareNoGpuAreTwoGangsUntilOneUsesBoth) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess first = join_with(job, {0}, 0);
  FakeProcess second = join_with(job, {1}, 0);
  EXPECT_EQ(manager_->leases().gangs().size(), 2u);
  FakeProcess third = join_with(job, {0, 1}, 0);
  EXPECT_EQ(manager_->leases().gangs().size(), 1u);
  EXPECT_EQ(manager_->leases().gangs().begin()->second.gpus, 3u);
}

TEST_F(TwoGpuTest, AHolderThatAttachesAnotherGpuGivesBackAndGetsBoth) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_with(job, {0}, 0);
  run(process);
  process.peer.send(Type::kAttachGpu, wire::AttachGpu{FakeGpus::uuid(1), 1 << 30, 0});
  pump();
  process.peer.expect<wire::Attached>(Type::kAttached);
  drain(process);
  EXPECT_EQ(process.peer.expect<wire::Grant>(Type::kGrant).gpus, 3u);
}

TEST_F(TwoGpuTest, AGangThatIsUnitedWithAnotherHoldsNoMoreThanBothHeld) {
  FakeJob job = admit(200 * kMiB);
  FakeProcess idle = join_with(job, {0}, 0);
  FakeProcess process = join_with(job, {1}, 0);
  FakeJob other_job = admit(200 * kMiB, "other");
  FakeProcess other = join_with(other_job, {0}, 0);
  run(other, 1);
  run(process, 2);
  process.peer.send(Type::kAttachGpu, wire::AttachGpu{FakeGpus::uuid(0), 1 << 30, 0});
  pump();
  process.peer.expect<wire::Attached>(Type::kAttached);
  EXPECT_EQ(process.peer.expect<wire::Grant>(Type::kGrant).gpus, 2u);
  EXPECT_FALSE(other.peer.next().has_value());
}

}  // namespace
TEST_F(ManagerTest, AJobThatGotSigtermComesFirst) {
  FakeJob holding = admit(700 * kMiB, "a");
  FakeJob early = admit(700 * kMiB, "b");
  FakeJob ending = admit(700 * kMiB, "c");
  FakeProcess holder = join_with(holding, {0}, 0);
  FakeProcess first = join_with(early, {0}, 0);
  FakeProcess last = join_with(ending, {0}, 0);
  run(holder);
  first.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  last.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  ending.runner.send_empty(Type::kExiting);
  report_idle(holder);
  pump();
  wire::Withdraw withdraw{};
  wait_for_withdraw(holder, withdraw);
  holder.peer.send(Type::kDrained, wire::Drained{withdraw.epoch, withdraw.attempt, 0, 0}, 0);
  std::optional<Packet> packet;
  pump_until_readable(last.peer, packet);
  EXPECT_EQ(packet->type, Type::kGrant);
  EXPECT_FALSE(first.peer.next());
  EXPECT_FALSE(ending.runner.next());  // no answer is expected
}

TEST_F(ManagerTest, AStoppedHolderIsNamedToThoseWhoWait) {
  FakeJob first = admit(700 * kMiB, "ada");
  FakeJob second = admit(700 * kMiB, "bob");
  FakeProcess holder = join_with(first, {0}, 600 * kMiB);
  FakeProcess waiter = join_with(second, {0}, 600 * kMiB);
  run(holder);
  wire::WantLease want{1, 0};
  waiter.peer.send(Type::kWantLease, want, 0);
  pump();
  auto job = [&](int index) { return admin("jobs")["jobs"][static_cast<std::size_t>(index)]; };
  const pid_t pid = job(0)["gangs"][0]["pids"][0];
  EXPECT_TRUE(job(0)["gangs"][0]["stopped_pids"].empty());
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_EQ(job(0)["gangs"][0]["stopped_pids"][0], pid);
  EXPECT_EQ(job(1)["gangs"][0]["waits_for"],
            cat("job 'ada': holder's process ", pid,
                " is stopped (Ctrl-Z or SIGSTOP): continue it with fg or kill -CONT"));
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WCONTINUED), 0);
  EXPECT_THAT(job(1)["gangs"][0]["waits_for"].dump(), testing::Not(testing::HasSubstr("stopped")));
}

}  // namespace plexrl::nodemgr::test
