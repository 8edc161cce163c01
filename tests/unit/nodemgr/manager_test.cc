#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "nodemgr/admin_answers.h"
#include "nodemgr/settings/cat.h"
#include "proto/segment.h"
#include "tests/unit/nodemgr/fake_node.h"

namespace plexrl::nodemgr::test {
namespace {

using ::testing::HasSubstr;
using wire::Type;
constexpr std::uint64_t kMiB = 1 << 20;

class ManagerTest : public FakeNode {
 protected:
  explicit ManagerTest(int gpus = 1) : FakeNode(gpus) {}

  /// Answers kWithdraw as a process that drains at once.
  void drain(FakeProcess& process) {
    auto withdraw = process.peer.expect<wire::Withdraw>(Type::kWithdraw);
    wire::Drained drained{};
    drained.epoch = withdraw.epoch;
    drained.attempt = withdraw.attempt;
    process.peer.send(Type::kDrained, drained, 0);
    pump();
    EXPECT_EQ(process.peer.expect<wire::LeaseRef>(Type::kRevoked).epoch, withdraw.epoch);
  }
  /// Serves until this process is told to let go; policy timers are real time.
  void wait_for_withdraw(FakeProcess& process, wire::Withdraw& withdraw) {
    std::optional<Packet> packet;
    pump_until_readable(process.peer, packet);
    ASSERT_EQ(packet->type, Type::kWithdraw);
    ASSERT_TRUE(packet->read(withdraw));
  }
  nlohmann::json admin(const std::string& verb) {
    return nlohmann::json::parse(admin_answer({manager_->node(), manager_->leases(), socket(), {}},
                                              cat("{\"verb\":\"", verb, "\"}")));
  }
};

class TwoGpuTest : public ManagerTest {
 protected:
  TwoGpuTest() : ManagerTest(2) {}
};

// ---- admission

TEST_F(ManagerTest, AJobThatFitsIsAdmittedWithASecretAndItsPromise) {
  FakeJob job = admit(300 * kMiB);
  EXPECT_EQ(job.admitted.promised_bytes, 300 * kMiB);
  EXPECT_EQ(job.admitted.simulated, 1u);
  EXPECT_NE(job.admitted.secret.hi, 0u);
}

TEST_F(ManagerTest, WhoNamesNoMemoryGetsMostOfTheGpu) {
  FakeJob first = admit(0);
  FakeJob second = admit(0);
  EXPECT_GT(first.admitted.promised_bytes, 700 * kMiB);
  EXPECT_EQ(second.admitted.promised_bytes, first.admitted.promised_bytes);
}

TEST_F(ManagerTest, AJobThatDoesNotFitIsQueuedWithFiguresAndAdmittedWhenAnotherEnds) {
  ASSERT_TRUE(values_.set("host.budget", "100MiB", "test").ok());
  crash_manager();
  start_manager();
  FakeJob first = admit(700 * kMiB);
  FakePeer second(socket());
  second.send(Type::kJobSubmit, job_submit(700 * kMiB, "second"));
  pump();
  auto notice = second.expect<wire::JobNotice>(Type::kJobQueued);
  EXPECT_GT(notice.needed_bytes, notice.available_bytes);
  EXPECT_THAT(field_text(notice.text), HasSubstr("--memory"));
  first.runner.kill();
  std::optional<Packet> packet;
  pump_until_readable(second, packet);
  EXPECT_EQ(packet->type, Type::kJobAdmitted);
}

TEST_F(ManagerTest, NoWaitIsRefusedWithTheFigures) {
  FakePeer runner(socket());
  wire::JobSubmit submit = job_submit(4096 * kMiB, "big");
  submit.flags = wire::kJobNoWait;
  runner.send(Type::kJobSubmit, submit);
  pump();
  EXPECT_THAT(field_text(runner.expect<wire::JobNotice>(Type::kJobRefused).text),
              HasSubstr("lower --memory"));
  EXPECT_TRUE(manager_->node().jobs.empty());
}

TEST_F(ManagerTest, AJobEndsWhenItsRunnerAndAllProcessesHaveGone) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join(job);
  job.runner.kill();
  pump();
  EXPECT_EQ(manager_->node().jobs.size(), 1u);
  process.peer.kill();
  while (!manager_->node().jobs.empty()) manager_->run_once(std::chrono::nanoseconds(-1));
  EXPECT_TRUE(manager_->node().sessions.empty());
}

// ---- who may join

TEST_F(ManagerTest, AWrongSecretIsRefused) {
  FakeJob job = admit(100 * kMiB);
  FakePeer peer(socket());
  wire::Hello hello = hello_for(job.admitted, peer);
  hello.secret.lo ^= 1;
  peer.send(Type::kHello, hello);
  pump();
  EXPECT_EQ(peer.expect<wire::Error>(Type::kRefused).code, wire::kErrorSecret);
}

TEST_F(ManagerTest, AnUnknownJobIsRefused) {
  FakePeer peer(socket());
  wire::JobAdmitted nobody{};
  peer.send(Type::kHello, hello_for(nobody, peer));
  pump();
  EXPECT_EQ(peer.expect<wire::Error>(Type::kRefused).code, wire::kErrorUnknownJob);
}

TEST_F(ManagerTest, AWelcomedProcessGetsSealedPages) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join(job);
  ASSERT_EQ(process.peer.last_fds().size(), 2u);
  int control = process.peer.last_fds()[0].get();
  int activity = process.peer.last_fds()[1].get();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, control, 0), MAP_FAILED);
  void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, control, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(static_cast<wire::ControlPage*>(page)->gpus[0].promised_bytes, 100 * kMiB);
  ::munmap(page, 4096);
  EXPECT_NE(::ftruncate(activity, 0), 0);
  EXPECT_NE(::ftruncate(control, 8192), 0);
}

// ---- memory

TEST_F(ManagerTest, AChargeBeyondThePromiseIsNotGranted) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_with(job, {0}, 60 * kMiB);
  process.peer.send(Type::kCharge, wire::Charge{0, 0, 50 * kMiB});
  pump();
  auto charged = process.peer.expect<wire::Charged>(Type::kCharged);
  EXPECT_EQ(charged.granted, 0u);
  EXPECT_EQ(charged.used_bytes, 60 * kMiB);
}

TEST_F(ManagerTest, ASlabIsASealedPopulatedMemfdAndComesBackToItsJobOnly) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join(job);
  std::optional<Packet> packet;
  process.peer.send(Type::kSlabRequest, wire::SlabRequest{4 * kMiB}, 7);
  pump_until_readable(process.peer, packet);
  wire::Slab slab{};
  ASSERT_EQ(packet->type, Type::kSlab);
  ASSERT_TRUE(packet->read(slab));
  EXPECT_EQ(packet->request, 7u);
  ASSERT_EQ(packet->fds.size(), 1u);
  EXPECT_NE(::ftruncate(packet->fds[0].get(), 0), 0);
  void* memory =
      ::mmap(nullptr, slab.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, packet->fds[0].get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  static_cast<char*>(memory)[0] = 'x';
  process.peer.send(Type::kSlabReturn, slab, 0);

  FakeJob other = admit(100 * kMiB);
  FakeProcess stranger = join(other);
  stranger.peer.send(Type::kSlabRequest, wire::SlabRequest{4 * kMiB});
  pump_until_readable(stranger.peer, packet);
  wire::Slab fresh{};
  ASSERT_TRUE(packet->read(fresh));
  EXPECT_NE(fresh.id, slab.id);

  process.peer.send(Type::kSlabRequest, wire::SlabRequest{4 * kMiB});
  pump_until_readable(process.peer, packet);
  ASSERT_TRUE(packet->read(fresh));
  EXPECT_EQ(fresh.id, slab.id);
  ::munmap(memory, slab.bytes);
}

TEST_F(ManagerTest, SlabsAreMadeAheadForWhatMayHaveToLeave) {
  FakeJob job_a = admit(700 * kMiB, "a");
  FakeJob job_b = admit(700 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 700 * kMiB);
  EXPECT_EQ(manager_->node().slabs->bytes_in_use(), 0u) << "alone nothing ever leaves";
  FakeProcess b = join_with(job_b, {0}, 700 * kMiB);
  std::uint64_t made = manager_->node().slabs->bytes_in_use();
  EXPECT_GE(made, 2 * 400 * kMiB);
  EXPECT_LE(made, 2 * 500 * kMiB);
  std::optional<Packet> packet;
  a.peer.send(Type::kSlabRequest, wire::SlabRequest{a.welcome.chunk_bytes});
  pump_until_readable(a.peer, packet);
  EXPECT_EQ(packet->type, Type::kSlab);
  EXPECT_EQ(manager_->node().slabs->bytes_in_use(), made);
}

TEST_F(ManagerTest, ASlabBeyondTheHostBudgetIsRefused) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join(job);
  process.peer.send(Type::kSlabRequest, wire::SlabRequest{8192 * kMiB});
  pump();
  EXPECT_EQ(process.peer.expect<wire::Error>(Type::kError).code, wire::kErrorNoHostMemory);
}

// ---- leases

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
  EXPECT_FALSE(b.peer.next());

  wire::Evicted evicted{};
  evicted.freed_bytes = evict.bytes;
  evicted.moved_bytes = evict.bytes;
  evicted.resident_bytes = 700 * kMiB - evict.bytes;
  a.peer.send(Type::kEvicted, evicted, 0);
  pump();
  auto second = b.peer.expect<wire::Grant>(Type::kGrant);
  EXPECT_GT(second.epoch, first.epoch);
  EXPECT_EQ(second.flags & wire::kGrantRunNow, 0u);
  wire::Loaded loaded{};
  loaded.epoch = second.epoch;
  loaded.moved_bytes = 700 * kMiB;
  b.peer.send(Type::kLoaded, loaded, 0);
  pump();
  b.peer.expect<wire::LeaseRef>(Type::kRun);
}

TEST_F(ManagerTest, AnEvictionThatCouldNotBeginFreesNothing) {
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
  wire::Evicted evicted{};
  evicted.failed = 1;
  a.peer.send(Type::kEvicted, evicted, 0);
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

// ---- untrusted input

TEST_F(ManagerTest, MalformedPacketsEndOnlyTheirSendersConnection) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess good = join_with(job, {0}, 0);
  wire::Header header{};
  header.magic = wire::kMagic;
  header.version = wire::kVersion;
  header.type = static_cast<std::uint16_t>(Type::kHello);
  header.bytes = 4000;
  std::string lying(reinterpret_cast<const char*>(&header), sizeof header);
  for (const std::string& bytes :
       {std::string("x"), std::string(9000, 'a'), lying, std::string(sizeof(wire::Header), '\0')}) {
    FakePeer bad(socket());
    bad.send_raw(bytes);
    pump();
    EXPECT_TRUE(bad.is_cut_off());
  }
  run(good);
}

TEST_F(ManagerTest, MessagesOutOfPlaceOrRangeAreRefused) {
  FakeJob job = admit(100 * kMiB);
  auto breaks = [&](Type type, const auto& body) {
    FakeProcess process = join(job);
    process.peer.send(type, body);
    pump();
    EXPECT_EQ(process.peer.expect<wire::Error>(Type::kError).code, wire::kErrorMalformed);
    EXPECT_TRUE(process.peer.is_cut_off());
  };
  breaks(Type::kCharge, wire::Charge{0, 0, 1});
  breaks(Type::kCharge, wire::Charge{4000000000u, 0, 1});
  breaks(Type::kEvicted, wire::Evicted{});
  breaks(Type::kSlabRequest, wire::SlabRequest{5});
  breaks(Type::kSlabReturn, wire::Slab{99, 1});
  breaks(Type::kResumeState, wire::ResumeState{});
  breaks(Type::kWantLease, wire::LeaseRef{});
  wire::Activity activity{};
  activity.count = 1000;
  breaks(Type::kActivity, activity);
}

TEST_F(ManagerTest, AnUnknownMessageIsAnsweredAndIgnored) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join(job);
  process.peer.send(static_cast<Type>(0x7777), wire::LeaseRef{});
  pump();
  EXPECT_EQ(process.peer.expect<wire::Error>(Type::kError).code, wire::kErrorUnknownType);
  EXPECT_FALSE(process.peer.is_cut_off());
}

TEST_F(ManagerTest, WhoDoesNotReadIsDroppedAndNobodyElseIs) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess deaf = join(job);
  FakeProcess good = join_with(job, {0}, 0);
  std::size_t sessions = manager_->node().sessions.size();
  for (int i = 0; i < 2000; ++i) {
    wire::LeaseRef body{};
    auto bytes = std::as_bytes(std::span(&body, 1));
    if (!deaf.peer.try_send(static_cast<Type>(0x7777), bytes)) break;
    pump();
  }
  pump();
  EXPECT_TRUE(deaf.peer.is_cut_off());
  EXPECT_EQ(manager_->node().sessions.size(), sessions) << "the process itself lives on";
  run(good);
}

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
  auto second = Manager::start(other, std::make_unique<FakeGpus>(1));
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
  std::ifstream file(run_folder + "/000000.plxt", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  trace::SegmentParser parser(bytes);
  trace::TraceChunk chunk;
  std::vector<std::string> states;
  std::vector<std::string> decisions;
  bool has_clock = false;
  bool names_job = false;
  while (parser.next(&chunk)) {
    for (const trace::TraceRecord& record : chunk.records()) {
      if (record.has_lease()) states.push_back(record.lease().state());
      if (record.has_decision()) decisions.push_back(record.decision().kind());
      has_clock |= record.has_clock();
      names_job |= record.session().job_name() == "traced";
    }
  }
  EXPECT_EQ(parser.problem(), "");
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
