// What the driver shows on the GPUs, and what follows from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kContext = 20 * kMiB;

class GpusTest : public ManagerTest {
 protected:
  /// A process that uses GPU 0, and has backed and reported what it was charged for.
  FakeProcess join_and_back(const FakeJob& job, std::uint64_t bytes) {
    FakeProcess process = join(job);
    process.peer.send(Type::kAttachGpu, wire::AttachGpu{FakeGpus::uuid(0), 1 << 30, 0});
    pump();
    process.peer.expect<wire::Attached>(Type::kAttached);
    charge(process, 0, bytes);
    report(process, bytes);
    return process;
  }
  void report(FakeProcess& process, std::uint64_t resident) {
    wire::MemoryReport report{};
    report.resident_bytes = resident;
    report.kind_bytes[0] = resident;
    process.peer.send(Type::kMemoryReport, report, 0);
    pump();
  }
  void look_twice() {
    manager_->look_at_gpus();
    manager_->look_at_gpus();
  }
  nlohmann::json gpu() { return admin("gpus")["gpus"][0]; }
  nlohmann::json row(const std::string& kind, const std::string& tier = "hbm") {
    const nlohmann::json answer = admin("memory");
    for (const nlohmann::json& row : answer["memory"]) {
      if (row["kind"] == kind && row["tier"] == tier) return row;
    }
    return nullptr;
  }
  nlohmann::json context_row() { return row("context"); }
};

TEST_F(GpusTest, ProcessesWithoutASessionAreNamedAndTheirMemoryIsNotOurs) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_and_back(job, 100 * kMiB);
  std::uint64_t budget = gpu()["budget_bytes"];
  show({{process.peer.pid(), 120 * kMiB}, {7777777, 50 * kMiB}});
  manager_->look_at_gpus();
  EXPECT_EQ(gpu()["used_by_others_bytes"], 50 * kMiB);
  EXPECT_EQ(gpu()["bypass_pids"], nlohmann::json::array({7777777}));
  EXPECT_EQ(gpu()["budget_bytes"], budget - 50 * kMiB);
  show({{process.peer.pid(), 120 * kMiB}});
  manager_->look_at_gpus();
  EXPECT_EQ(gpu()["used_by_others_bytes"], 0);
  EXPECT_EQ(gpu()["bypass_pids"], nlohmann::json::array());
}

TEST_F(GpusTest, WhereTheDriversPidsAreNotOursNobodyIsNamed) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_and_back(job, 100 * kMiB);
  show({{7777777, 120 * kMiB}});  // our process, by the pid that another container would give it
  look_twice();
  EXPECT_TRUE(gpu()["bypass_pids"].is_null());
  EXPECT_EQ(gpu()["used_by_others_bytes"], 0);
  EXPECT_THAT(context_row()["reason"], HasSubstr("set aside"));
}

TEST_F(GpusTest, WhatAProcessTakesBesideItsChargesIsMeasured) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_and_back(job, 100 * kMiB);
  show({{process.peer.pid(), 100 * kMiB + kContext}});
  look_twice();
  EXPECT_EQ(context_row()["bytes"], kContext);
  EXPECT_THAT(context_row()["reason"], HasSubstr("as the driver shows"));
  EXPECT_EQ(admin("jobs")["jobs"][0]["hbm_bytes"], 100 * kMiB + kContext);
  EXPECT_EQ(gpu()["used_by_plexrl_bytes"], 100 * kMiB + kContext);
}

// More processes than anybody foresaw when the promises were made: 64 MiB are set aside for each,
// and with the neighbour's promise that is more than the GPU has.
TEST_F(GpusTest, WhoWaitsForRoomIsHeldUpByWhatOthersTakeAndNotByWhatIsSetAside) {
  FakeJob many = admit(100 * kMiB, "many"), large = admit(700 * kMiB, "large");
  std::vector<FakeProcess> processes;
  std::vector<GpuUse::Process> shown;
  for (int i = 0; i < 5; ++i) {
    processes.push_back(join(many));
    FakeProcess& process = processes.back();
    process.peer.send(Type::kAttachGpu, wire::AttachGpu{FakeGpus::uuid(0), 1 << 30, 0});
    pump();
    process.peer.expect<wire::Attached>(Type::kAttached);
    shown.push_back({process.peer.pid(), kContext});
  }
  FakeProcess one = join_with(large, {0}, 700 * kMiB);
  one.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  EXPECT_FALSE(one.peer.next()) << "granted without room";
  show(shown);
  look_twice();
  std::optional<Packet> packet;
  pump_until_readable(one.peer, packet);
  EXPECT_EQ(packet->type, Type::kGrant);
}

TEST_F(GpusTest, WhatGrowsBesideTheChargesIsNamedApart) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_and_back(job, 100 * kMiB);
  show({{process.peer.pid(), 100 * kMiB + kContext}});
  look_twice();
  EXPECT_EQ(row("other"), nullptr);
  show({{process.peer.pid(), 107 * kMiB + kContext}});
  look_twice();
  EXPECT_EQ(row("context")["bytes"], kContext);
  EXPECT_EQ(row("other")["bytes"], 7 * kMiB);
  EXPECT_THAT(row("other")["reason"], HasSubstr("unexplained"));
  nlohmann::json its = admin("memory")["processes"][0];
  EXPECT_EQ(its["driver_bytes"], 107 * kMiB + kContext);
  EXPECT_EQ(its["accounted_bytes"], 107 * kMiB + kContext);
}

TEST_F(GpusTest, MemoryOfAnotherProcessOfTheJobIsNoOverhead) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_and_back(job, 60 * kMiB);
  wire::Kinds kinds{};
  kinds.kinds[static_cast<int>(wire::MemoryKind::kAlloc)].resident_bytes = 60 * kMiB;
  kinds.kinds[static_cast<int>(wire::MemoryKind::kIpc)].resident_bytes = 30 * kMiB;
  process.peer.send(Type::kKinds, kinds, 0);
  pump();
  show({{process.peer.pid(), 90 * kMiB + kContext}});
  look_twice();
  EXPECT_EQ(row("context")["bytes"], kContext);
  EXPECT_EQ(row("ipc")["bytes"], 30 * kMiB);
  EXPECT_EQ(row("other"), nullptr);
  EXPECT_EQ(admin("memory")["processes"][0]["accounted_bytes"], 90 * kMiB + kContext);
}

TEST_F(GpusTest, ManagedMemoryIsWhereTheDriversFigureSaysItIs) {
  FakeJob job = admit(200 * kMiB);
  FakeProcess process = join_and_back(job, 100 * kMiB);
  show({{process.peer.pid(), 100 * kMiB + kContext}});
  look_twice();
  process.peer.send(Type::kCharge, wire::Charge{0, 1, 50 * kMiB});
  pump();
  EXPECT_EQ(process.peer.expect<wire::Charged>(Type::kCharged).granted, 1u);
  wire::MemoryReport report{};
  report.resident_bytes = report.kind_bytes[0] = 100 * kMiB;
  report.kind_bytes[static_cast<int>(wire::MemoryKind::kManaged)] = 50 * kMiB;
  report.kind_bytes[static_cast<int>(wire::MemoryKind::kHostRegistered)] = 9 * kMiB;
  process.peer.send(Type::kMemoryReport, report, 0);
  pump();
  show({{process.peer.pid(), 130 * kMiB + kContext}});
  look_twice();
  EXPECT_EQ(row("managed", "hbm")["bytes"], 30 * kMiB);
  EXPECT_EQ(row("managed", "host")["bytes"], 20 * kMiB);
  EXPECT_EQ(row("host_registered", "host")["bytes"], 9 * kMiB);
  EXPECT_EQ(row("other"), nullptr);
  EXPECT_EQ(admin("memory")["processes"][0]["accounted_bytes"], 130 * kMiB + kContext);
  show({{process.peer.pid(), 157 * kMiB + kContext}});
  look_twice();
  EXPECT_EQ(row("managed", "hbm")["bytes"], 50 * kMiB);
  EXPECT_EQ(row("managed", "host"), nullptr);
  EXPECT_EQ(row("other")["bytes"], 7 * kMiB) << "more than all of it";
  show({{process.peer.pid(), 107 * kMiB + kContext}});
  look_twice();
  EXPECT_EQ(row("other")["bytes"], 7 * kMiB) << "what has grown is not given back by a move";
  EXPECT_EQ(row("managed", "host")["bytes"], 50 * kMiB);
}

TEST_F(GpusTest, NothingIsMeasuredWhileAReportIsOnItsWay) {
  FakeJob job = admit(200 * kMiB);
  FakeProcess process = join_and_back(job, 100 * kMiB);
  charge(process, 0, 64 * kMiB);  // and backed, but not reported yet
  show({{process.peer.pid(), 164 * kMiB + kContext}});
  look_twice();
  EXPECT_THAT(context_row()["reason"], HasSubstr("set aside"));
  report(process, 164 * kMiB);
  look_twice();
  EXPECT_EQ(context_row()["bytes"], kContext);
}

TEST_F(GpusTest, NothingIsMeasuredBeforeAProcessHasComeBackToTheNextManager) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_and_back(job, 100 * kMiB);
  crash_manager();
  start_manager();
  show({{process.peer.pid(), 100 * kMiB + kContext}});
  look_twice();
  EXPECT_THAT(context_row()["reason"], HasSubstr("set aside"));
  EXPECT_LT(context_row()["bytes"], 100 * kMiB);
}

TEST_F(GpusTest, TheNextManagerAdmitsBesideWhatProcessesTookAndNotBesideAGuess) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_and_back(job, 100 * kMiB);
  show({{process.peer.pid(), 100 * kMiB + 300 * kMiB}});
  look_twice();
  crash_manager();
  start_manager();
  // Of 992 MiB 64 are set aside for the process to come, and were for the one that is there.
  FakePeer late(socket());
  late.send(Type::kJobSubmit, job_submit(700 * kMiB, "late"));
  pump();
  EXPECT_THAT(field_text(late.expect<wire::JobNotice>(Type::kJobQueued).text), HasSubstr("GPU 0"));
}

TEST_F(GpusTest, TheNextRunOfAJobIsAdmittedWithWhatItsProcessesTook) {
  FakeJob job = admit(800 * kMiB, "learner/1");
  FakeProcess process = join_and_back(job, 800 * kMiB);
  show({{process.peer.pid(), 800 * kMiB + kContext}});
  look_twice();
  show({});
  process.peer.kill();
  job.runner.kill();
  while (!manager_->node().jobs.empty()) manager_->run_once(std::chrono::nanoseconds(-1));

  crash_manager();
  start_manager();
  // Of 1 GiB 64 MiB are set aside for an unknown process: 950 MiB don't fit beside it.
  FakePeer unknown(socket());
  wire::JobSubmit submit = job_submit(950 * kMiB, "other");
  submit.flags = wire::kJobNoWait;
  unknown.send(Type::kJobSubmit, submit);
  pump();
  unknown.expect<wire::JobNotice>(Type::kJobRefused);
  FakeJob again = admit(950 * kMiB, "learner/1");
  EXPECT_EQ(again.admitted.promised_bytes, 950 * kMiB);
}

TEST_F(GpusTest, AProcessThatTakesMoreThanForeseenCostsNobodyItsPromise) {
  FakeJob job_a = admit(600 * kMiB, "a");
  FakeJob job_b = admit(600 * kMiB, "b");
  FakeProcess a = join_and_back(job_a, 100 * kMiB);
  FakeProcess b = join_and_back(job_b, 100 * kMiB);
  show({{a.peer.pid(), 500 * kMiB}, {b.peer.pid(), 100 * kMiB + kContext}});
  look_twice();
  charge(b, 0, 500 * kMiB);
  charge(a, 0, 500 * kMiB);
  FakePeer late(socket());
  late.send(Type::kJobSubmit, job_submit(100 * kMiB, "late"));
  pump();
  EXPECT_THAT(field_text(late.expect<wire::JobNotice>(Type::kJobQueued).text), HasSubstr("GPU 0"));
}

TEST_F(GpusTest, MemoryOfADeadProcessIsFreeWhenTheDriverSaysSo) {
  FakeJob job_a = admit(700 * kMiB, "a");
  FakeJob job_b = admit(700 * kMiB, "b");
  FakeProcess a = join_and_back(job_a, 700 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 700 * kMiB);
  run(a);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  pid_t dead = a.peer.pid();
  show({{dead, 720 * kMiB}});
  a.peer.kill();
  while (manager_->node().sessions.size() > 1) manager_->run_once(std::chrono::nanoseconds(-1));
  pump();
  EXPECT_EQ(gpu()["departing_bytes"], 720 * kMiB);
  EXPECT_EQ(gpu()["bypass_pids"], nlohmann::json::array());
  EXPECT_EQ(gpu()["used_by_others_bytes"], 0);
  EXPECT_FALSE(b.peer.next()) << "granted while the bytes are still taken";
  EXPECT_EQ(admin("jobs")["jobs"][1]["gangs"][0]["waits_for"],
            "memory of ended processes is not free yet");

  show({});
  std::optional<Packet> packet;
  pump_until_readable(b.peer, packet);
  EXPECT_EQ(packet->type, Type::kGrant);
  EXPECT_EQ(gpu()["departing_bytes"], 0);
}

}  // namespace
}  // namespace plexrl::nodemgr::test
