#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/unit/nodemgr/manager_fixture.h"
#include "tests/unit/nodemgr/read_trace.h"

namespace plexrl::nodemgr::test {
namespace {

using ::testing::HasSubstr;

// ---- restart

TEST_F(ManagerTest, AfterARestartTheHolderGoesOnAndNobodyElseIsGrantedBefore) {
  FakeJob job_a = admit(700 * kMiB, "a");
  FakeJob job_b = admit(700 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 700 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 700 * kMiB);
  wire::Grant grant = run(a);
  crash_manager();
  start_manager();
  EXPECT_EQ(manager_->node().jobs.size(), 2u);
  EXPECT_EQ(manager_->node().generation, 2u);

  auto resume = [&](FakeProcess& process, const FakeJob& job, wire::Epoch held) {
    process.peer.connect_again(socket());
    wire::Hello hello = hello_for(job.admitted, process.peer);
    hello.flags = wire::kHelloResume;
    hello.session = process.welcome.session;
    process.peer.send(Type::kHello, hello);
    pump();
    auto welcome = process.peer.expect<wire::Welcome>(Type::kWelcome);
    EXPECT_EQ(welcome.session, process.welcome.session);
    EXPECT_EQ(welcome.generation, 2u);
    wire::ResumeState state{};
    state.gpu_count = 1;
    state.uuid = FakeGpus::uuid(0);
    state.charged_bytes = 700 * kMiB;
    bool open = held != wire::Epoch{};
    state.flags = open ? 1 : 0;
    state.resident_bytes = open ? 700 * kMiB : 0;
    state.host_bytes = open ? 0 : 700 * kMiB;
    state.held = held;
    process.peer.send(Type::kResumeState, state, 0);
    pump();
  };
  resume(b, job_b, {});
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  EXPECT_FALSE(b.peer.next()) << "granted while a process of the manager before is awaited";
  resume(a, job_a, grant.epoch);
  EXPECT_FALSE(admin("gpus")["gpus"][0]["holder"].is_null());

  report_idle(a);
  wire::Withdraw withdraw{};
  wait_for_withdraw(a, withdraw);
  EXPECT_EQ(withdraw.epoch, grant.epoch);
  a.peer.send(Type::kDrained, wire::Drained{withdraw.epoch, withdraw.attempt, 0, 0}, 0);
  pump();
  a.peer.expect<wire::LeaseRef>(Type::kRevoked);
  EXPECT_GT(a.peer.expect<wire::Evict>(Type::kEvict).bytes, 0u);
}

class HeldSlabsTest : public ManagerTest {
 protected:
  /// Comes back to a new manager with slabs, some of which have evicted bytes in them.
  void come_back(FakeProcess& process, std::uint64_t slab_bytes, std::uint64_t host_bytes,
                 std::uint64_t features = ~std::uint64_t{0}) {
    process.peer.connect_again(socket());
    wire::Hello hello = hello_for(job_.admitted, process.peer);
    hello.features &= features;
    hello.flags = wire::kHelloResume;
    hello.session = process.welcome.session;
    process.peer.send(Type::kHello, hello);
    pump();
    const auto welcome = process.peer.expect<wire::Welcome>(Type::kWelcome);
    EXPECT_EQ(welcome.features, hello.features) << "those that both have";
    if ((hello.features & wire::kFeatureSlabsHeld) != 0) {
      process.peer.send(Type::kSlabsHeld, wire::SlabsHeld{slab_bytes}, 0);
      pump();
      EXPECT_TRUE(manager_->node().sessions.at(welcome.session)->awaited) << "its state is to come";
    }
    wire::ResumeState state{};
    state.gpu_count = 1;
    state.uuid = FakeGpus::uuid(0);
    state.charged_bytes = 100 * kMiB;
    state.resident_bytes = 100 * kMiB - host_bytes;
    state.host_bytes = host_bytes;
    process.peer.send(Type::kResumeState, state, 0);
    pump();
    EXPECT_FALSE(manager_->node().sessions.at(welcome.session)->awaited);
  }
  std::uint64_t in_use() { return manager_->node().slabs->bytes_in_use(); }

  FakeJob job_ = admit(400 * kMiB);
  FakeProcess process_ = join_with(job_, {0}, 100 * kMiB);
};

TEST_F(HeldSlabsTest, WhatAProcessKeepsOnTheHostIsCountedAfterARestart) {
  crash_manager();
  start_manager();
  come_back(process_, 96 * kMiB, 32 * kMiB);
  EXPECT_EQ(in_use(), 96 * kMiB) << "kept copies and free space, too";
  const std::uint64_t rest = manager_->node().ledger.host_budget() - 96 * kMiB;
  FakeProcess other = join_with(job_, {0}, 0);
  other.peer.send(Type::kSlabRequest, wire::SlabRequest{rest + 4 * kMiB}, 5);
  pump();
  other.peer.expect<wire::Error>(Type::kError);
  // The connection alone is lost: it says the same, which is counted once.
  process_.peer.disconnect();
  pump();
  come_back(process_, 96 * kMiB, 32 * kMiB);
  EXPECT_EQ(in_use(), 96 * kMiB);
  process_.peer.kill();
  pump();
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(ManagerTest, WhatAnAwaitedProcessHasMappedIsCountedBeforeItIsBack) {
  const std::size_t bytes = 64 * kMiB;
  const ScopedFd slab(::memfd_create(kSlabName, MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(slab.get(), static_cast<off_t>(bytes)), 0);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, slab.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  FakeJob job = admit(400 * kMiB);
  FakeProcess process = join_with(job, {0}, 100 * kMiB);  // a child, which has that mapping, too
  crash_manager();
  start_manager();
  EXPECT_EQ(manager_->node().slabs->bytes_in_use(), bytes);
  process.peer.kill();
  pump();
  EXPECT_EQ(manager_->node().slabs->bytes_in_use(), 0u);
  ::munmap(mapped, bytes);
}

TEST_F(HeldSlabsTest, OfAnOlderShimWhatWasEvictedIsCounted) {
  crash_manager();
  start_manager();
  come_back(process_, 0, 32 * kMiB, ~std::uint64_t{wire::kFeatureSlabsHeld});
  EXPECT_EQ(in_use(), 32 * kMiB);
}

TEST_F(HeldSlabsTest, NobodySaysWhatItHoldsInTheMiddleOfItsLife) {
  process_.peer.send(Type::kSlabsHeld, wire::SlabsHeld{1}, 0);
  pump();
  EXPECT_TRUE(process_.peer.is_cut_off());
}

TEST_F(ManagerTest, AfterARestartTheDeathOfAnAwaitedProcessFreesItsGpu) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 0);
  run(a);
  crash_manager();
  start_manager();
  job_b.runner.connect_again(socket());
  job_b.runner.send(Type::kJobResume,
                    wire::JobResume{job_b.admitted.job, job_b.admitted.secret, job_b.submitted});
  pump();
  EXPECT_EQ(job_b.runner.expect<wire::JobAdmitted>(Type::kJobAdmitted).job, job_b.admitted.job);
  FakeProcess b = join_with(job_b, {0}, 0);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  EXPECT_FALSE(b.peer.next());
  a.peer.kill();
  std::optional<Packet> packet;
  pump_until_readable(b.peer, packet);
  EXPECT_EQ(packet->type, Type::kGrant);
}

TEST_F(ManagerTest, AProgramThatIsReplacedByExecGivesBackItsLeaseAndMemory) {
  FakeJob job_a = admit(700 * kMiB, "a");
  FakeJob job_b = admit(700 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 700 * kMiB);
  run(a);
  FakeProcess b = join_with(job_b, {0}, 700 * kMiB);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  EXPECT_FALSE(b.peer.next());
  a.peer.become_another_program();
  a.peer.disconnect();
  pump();
  b.peer.expect<wire::Grant>(Type::kGrant);
  EXPECT_EQ(manager_->node().sessions.size(), 1u);
  EXPECT_EQ(manager_->node().jobs.size(), 2u) << "its plexrl-run is still there";
}

TEST_F(ManagerTest, AProgramThatLosesItsConnectionAloneKeepsWhatItHas) {
  FakeJob job = admit(700 * kMiB);
  FakeProcess a = join_with(job, {0}, 700 * kMiB);
  run(a);
  a.peer.disconnect();
  pump();
  EXPECT_EQ(manager_->node().sessions.size(), 1u);
}

TEST_F(ManagerTest, AfterARestartAnExecOfAnAwaitedProcessFreesItsGpu) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 0);
  run(a);
  crash_manager();
  start_manager();
  job_b.runner.connect_again(socket());
  job_b.runner.send(Type::kJobResume,
                    wire::JobResume{job_b.admitted.job, job_b.admitted.secret, job_b.submitted});
  pump();
  EXPECT_EQ(job_b.runner.expect<wire::JobAdmitted>(Type::kJobAdmitted).job, job_b.admitted.job);
  FakeProcess b = join_with(job_b, {0}, 0);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  EXPECT_FALSE(b.peer.next());
  a.peer.become_another_program();
  std::optional<Packet> packet;
  pump_until_readable(b.peer, packet);
  EXPECT_EQ(packet->type, Type::kGrant);
}

TEST_F(ManagerTest, AJobWhoseJournalIsLostIsTakenBackByItsSecret) {
  FakeJob job = admit(100 * kMiB);
  crash_manager();
  std::filesystem::remove_all(folder_ + "/state/journal");
  start_manager();
  job.runner.connect_again(socket());
  job.runner.send(Type::kJobResume,
                  wire::JobResume{job.admitted.job, job.admitted.secret, job.submitted});
  pump();
  EXPECT_EQ(job.runner.expect<wire::JobAdmitted>(Type::kJobAdmitted).promised_bytes, 100 * kMiB);
  join(job);
}

/// `process` says to the manager of now that it has this lease and that its gate is open.
class ClaimTest : public ManagerTest {
 protected:
  void claim(FakeProcess& process, const FakeJob& job, wire::Epoch held) {
    process.peer.connect_again(socket());
    wire::Hello hello = hello_for(job.admitted, process.peer);
    hello.flags = wire::kHelloResume;
    hello.session = process.welcome.session;
    process.peer.send(Type::kHello, hello);
    pump();
    process.welcome = process.peer.expect<wire::Welcome>(Type::kWelcome);
    wire::ResumeState state{};
    state.gpu_count = 1;
    state.flags = 1;
    state.uuid = FakeGpus::uuid(0);
    state.held = held;
    process.peer.send(Type::kResumeState, state, 0);
    pump();
  }
  void restart() {
    crash_manager();
    start_manager();
  }
};

TEST_F(ClaimTest, AHolderThatSaysThatItIsIdleIsNotTakenForBusy) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess one = join_with(job, {0}, 0);
  FakeProcess two = join_with(job, {0}, 0);
  wire::Grant grant = run(one);
  restart();
  auto is_idle = [&] { return admin("jobs")["jobs"][0]["gangs"][0]["idle"].get<bool>(); };
  claim(one, job, grant.epoch);
  report_idle(one);
  claim(two, job, grant.epoch);
  EXPECT_FALSE(is_idle()) << "the second process has not said yet what it is";
  report_idle(two);
  EXPECT_TRUE(is_idle());
}

TEST_F(ClaimTest, TheJournalSaysWhoHasTheLease) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess liar = join_with(job_a, {0}, 0);
  FakeProcess holder = join_with(job_b, {0}, 0);
  wire::Grant grant = run(holder);
  restart();
  claim(liar, job_a, {grant.epoch.generation, grant.epoch.counter + 7});
  claim(holder, job_b, grant.epoch);
  EXPECT_EQ(liar.peer.expect<wire::LeaseRef>(Type::kRevoked).epoch.counter,
            grant.epoch.counter + 7);
  EXPECT_FALSE(holder.peer.next());
  std::map<std::string, std::string> states;
  const auto answer = admin("jobs");
  for (const auto& job : answer.at("jobs")) states[job["name"]] = job["state"];
  EXPECT_EQ(states["b"], "running");
  EXPECT_EQ(states["a"], "idle");
}

TEST_F(ClaimTest, TheLeaseOfAnotherProcessIsNoClaim) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess thief = join_with(job_a, {0}, 0);
  FakeProcess holder = join_with(job_b, {0}, 0);
  wire::Grant grant = run(holder);
  restart();
  claim(holder, job_b, {});
  claim(thief, job_a, grant.epoch);
  EXPECT_EQ(thief.peer.expect<wire::Withdraw>(Type::kWithdraw).epoch, grant.epoch);
}

TEST_F(ClaimTest, AClaimThatNoJournalHasIsTakenBackBeforeAnybodyIsGranted) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess claimant = join_with(job_a, {0}, 0);
  FakeProcess waiter = join_with(job_b, {0}, 0);
  restart();
  claim(waiter, job_b, {});
  claim(claimant, job_a, {1, 5});
  waiter.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  pump();
  EXPECT_FALSE(waiter.peer.next());
  drain(claimant);
  EXPECT_TRUE(waiter.peer.next());
}

TEST_F(ClaimTest, AClaimOfAJobWhoseJournalIsLostIsTakenBackToo) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_with(job, {0}, 0);
  wire::Grant grant = run(process);
  crash_manager();
  std::filesystem::remove_all(folder_ + "/state/journal");
  start_manager();
  job.runner.connect_again(socket());
  job.runner.send(Type::kJobResume,
                  wire::JobResume{job.admitted.job, job.admitted.secret, job.submitted});
  pump();
  claim(process, job, grant.epoch);
  drain(process);
}

TEST_F(ClaimTest, TheNextManagerStillKnowsTheGrantWhenOneDiedBeforeAnybodyCameBack) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_with(job, {0}, 0);
  wire::Grant grant = run(process);
  restart();
  restart();
  claim(process, job, grant.epoch);
  EXPECT_FALSE(process.peer.next()) << "its lease was doubted";
  EXPECT_EQ(admin("jobs")["jobs"][0]["state"], "running");
}

TEST_F(ManagerTest, AProcessOfAnotherUserNamespaceMayNotJoin) {
  FakeJob job = admit(100 * kMiB);
  crash_manager();
  const std::string path = folder_ + "/state/journal/nodemgr.journal";
  absl::StatusOr<Journal::Contents> contents = Journal::read(path);
  ASSERT_TRUE(contents.ok());
  for (JournalRecord& record : contents->records) {
    if (record.kind != "job") continue;
    EXPECT_EQ(record.number("user_namespace"), user_namespace_of(::getpid()));
    record.fields["user_namespace"] = "1";
  }
  ASSERT_TRUE(Journal(path).rewrite(contents->records).ok());
  start_manager();
  FakePeer stranger(socket());
  stranger.send(Type::kHello, hello_for(job.admitted, stranger));
  pump();
  EXPECT_THAT(field_text(stranger.expect<wire::Error>(Type::kRefused).text),
              HasSubstr("another user namespace"));
}

TEST_F(ManagerTest, ALostConnectionKeepsTheLease) {
  FakeJob job_a = admit(100 * kMiB, "a");
  FakeJob job_b = admit(100 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 0);
  FakeProcess b = join_with(job_b, {0}, 0);
  wire::Grant grant = run(a);
  b.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
  a.peer.disconnect();
  pump();
  EXPECT_FALSE(b.peer.next());
  a.peer.connect_again(socket());
  wire::Hello hello = hello_for(job_a.admitted, a.peer);
  hello.flags = wire::kHelloResume;
  hello.session = a.welcome.session;
  a.peer.send(Type::kHello, hello);
  wire::ResumeState state{};
  state.gpu_count = 1;
  state.flags = 1;
  state.uuid = FakeGpus::uuid(0);
  state.held = grant.epoch;
  a.peer.send(Type::kResumeState, state, 0);
  pump();
  a.peer.expect<wire::Welcome>(Type::kWelcome);
  wire::Withdraw withdraw{};
  wait_for_withdraw(a, withdraw);
  EXPECT_EQ(withdraw.epoch, grant.epoch);
}

// ---- one manager, disk, trace, administration

TEST_F(ManagerTest, ASecondManagerOfTheSameGpuIsRefusedByName) {
  settings::Values other = values_;
  ASSERT_TRUE(other.set("socket", folder_ + "/other.sock", "test").ok());
  auto second = Manager::start(other, std::make_unique<FakeGpus>(1, use_));
  ASSERT_TRUE(absl::IsAlreadyExists(second.status()));
  EXPECT_THAT(message_of(second.status()), HasSubstr(cat("pid ", ::getpid())));
  EXPECT_THAT(message_of(second.status()), HasSubstr(socket()));
}

TEST_F(ManagerTest, AStateFolderThatCannotBeWrittenIsAWarning) {
  crash_manager();
  std::filesystem::remove_all(folder_ + "/state");
  std::ofstream(folder_ + "/state") << "a file, not a folder";
  start_manager();
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_with(job, {0}, 0);
  run(process);
  EXPECT_TRUE(manager_->node().journal_failed);
}

TEST_F(ManagerTest, TheTraceTellsOfJobsLeasesAndDecisions) {
  FakeJob job = admit(100 * kMiB, "traced");
  FakeProcess process = join_with(job, {0}, 10 * kMiB);
  run(process);
  std::string run_folder = manager_->node().trace->run_folder();
  crash_manager();
  const TraceRead read = read_trace(bytes_of(run_folder + "/000000.plxt"));
  std::vector<std::string> states;
  std::vector<std::string> decisions;
  bool has_clock = false;
  bool names_job = false;
  for (const trace::TraceRecord& record : read.records) {
    if (record.has_lease()) states.push_back(record.lease().state());
    if (record.has_decision()) decisions.push_back(record.decision().kind());
    has_clock |= record.has_clock();
    names_job |= record.session().job_name() == "traced";
  }
  EXPECT_EQ(read.problem, "");
  EXPECT_THAT(states, ::testing::IsSupersetOf({"waiting", "loading", "running"}));
  EXPECT_THAT(decisions, ::testing::IsSupersetOf({"admit", "grant", "run"}));
  EXPECT_TRUE(has_clock);
  EXPECT_TRUE(names_job);
}

TEST_F(ManagerTest, StatusNamesTheHolderAndItsMemory) {
  FakeJob job = admit(100 * kMiB, "shown");
  FakeProcess process = join_with(job, {0}, 10 * kMiB);
  run(process);
  nlohmann::json gpus = admin("gpus");
  EXPECT_EQ(gpus["schema"], 1);
  EXPECT_EQ(gpus["simulated"], true);
  EXPECT_EQ(gpus["node"], "testnode");
  EXPECT_EQ(gpus["gpus"][0]["holder"], admin("jobs")["jobs"][0]["id"]);
  EXPECT_EQ(admin("jobs")["jobs"][0]["state"], "running");
  EXPECT_EQ(admin("memory")["memory"][0]["bytes"], 10 * kMiB);
  EXPECT_THAT(admin("statu")["error"].get<std::string>(), HasSubstr("did you mean 'status'"));
}

}  // namespace
}  // namespace plexrl::nodemgr::test
