#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <fstream>

#include "nodemgr/ids.h"
#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_EQ(first.admitted.promised_bytes % (2 * kMiB), 0u) << "all of it can be allocated";
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

TEST_F(ManagerTest, WhoIsNoMemberOfATeamIsRefusedAndLeavesNothingBehind) {
  const std::string path = folder_ + "/teams.toml";
  std::ofstream(path) << "[[team]]\nname = 'theirs'\nmembers = ['nobody-here']\n"
                         "[[team]]\nname = 'all'\npriority_max = 40\nmax_slowdown = 2\n";
  manager_->set_teams(*Teams::from_file(path));
  FakePeer runner(socket());
  wire::JobSubmit submit = job_submit(100 * kMiB, "one");
  const auto answer = [&](const std::string& team, int priority) {
    set_field(submit.team, team);
    submit.priority = priority;
    runner.send(Type::kJobSubmit, submit);
    pump();
    return field_text(runner.expect<wire::JobNotice>(Type::kJobRefused).text);
  };
  EXPECT_THAT(answer("theirs", 10), HasSubstr("is no member of team 'theirs'"));
  EXPECT_THAT(answer("thiers", 10), HasSubstr("no team 'thiers', did you mean 'theirs'?"));
  EXPECT_THAT(answer("all", 41), HasSubstr("--priority 40 or less"));
  EXPECT_TRUE(manager_->node().jobs.empty());
  submit.priority = 40;
  runner.send(Type::kJobSubmit, submit);
  pump();
  runner.expect<wire::JobAdmitted>(Type::kJobAdmitted);
  const Job& job = *manager_->node().jobs.begin()->second;
  EXPECT_EQ(job.team, "all");
  const nlohmann::json all = admin("limits")["teams"][1];
  EXPECT_EQ(all["name"], "all");
  EXPECT_EQ(all["jobs"], 1);
  EXPECT_EQ(all["priority_max"], 40);
  EXPECT_TRUE(all["members"].is_null());
  EXPECT_EQ(job.max_slowdown, 2) << "the team's, where the job asks for none";
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

TEST_F(ManagerTest, AJobThatCanNeverFitIsRefusedAtOnce) {
  FakePeer runner(socket());
  runner.send(Type::kJobSubmit, job_submit(4096 * kMiB, "big"));
  pump();
  auto notice = runner.expect<wire::JobNotice>(Type::kJobRefused);
  EXPECT_EQ(notice.needed_bytes, 4096 * kMiB);
  EXPECT_LT(notice.available_bytes, 1024 * kMiB);
  EXPECT_THAT(field_text(notice.text), HasSubstr("will never fit: lower --memory"));
  EXPECT_TRUE(manager_->node().jobs.empty());
}

TEST_F(ManagerTest, AJobThatWouldWaitForTheOneItIsInsideOfIsRefusedWithTheRemedy) {
  ASSERT_TRUE(values_.set("host.budget", "100MiB", "test").ok());
  crash_manager();
  start_manager();
  FakeJob outer = admit(700 * kMiB, "outer");
  for (std::uint64_t wanted : {700 * kMiB, 100 * kMiB}) {
    FakePeer inner(socket());
    inner.send(Type::kJobParent, wire::JobParent{outer.admitted.job});
    inner.send(Type::kJobSubmit, job_submit(wanted, "inner"));
    pump();
    if (wanted == 100 * kMiB) {
      inner.expect<wire::JobAdmitted>(Type::kJobAdmitted);
      continue;
    }
    const std::string text = field_text(inner.expect<wire::JobNotice>(Type::kJobRefused).text);
    EXPECT_THAT(text, HasSubstr("'outer'"));
    EXPECT_THAT(text, HasSubstr("--join"));
  }
}

TEST_F(ManagerTest, AJobInsideOfAnotherStillWaitsForStrangers) {
  ASSERT_TRUE(values_.set("host.budget", "100MiB", "test").ok());
  crash_manager();
  start_manager();
  FakeJob outer = admit(100 * kMiB, "outer");
  FakeJob stranger = admit(700 * kMiB, "stranger");
  FakePeer inner(socket());
  inner.send(Type::kJobParent, wire::JobParent{outer.admitted.job});
  inner.send(Type::kJobSubmit, job_submit(700 * kMiB, "inner"));
  pump();
  inner.expect<wire::JobNotice>(Type::kJobQueued);
  stranger.runner.kill();
  std::optional<Packet> packet;
  pump_until_readable(inner, packet);
  EXPECT_EQ(packet->type, Type::kJobAdmitted);
}

TEST_F(ManagerTest, WhoAsksToJoinAJobIsAnsweredByIdAndSecret) {
  FakeJob job = admit(100 * kMiB);
  FakePeer asker(socket());
  asker.send(Type::kJobJoin, wire::JobJoin{job.admitted.job, job.admitted.secret});
  pump();
  EXPECT_EQ(asker.expect<wire::JobAdmitted>(Type::kJobAdmitted).job, job.admitted.job);
  asker.send(Type::kJobJoin, wire::JobJoin{job.admitted.job, {}});
  pump();
  EXPECT_EQ(asker.expect<wire::Error>(Type::kError).code, wire::kErrorSecret);
  asker.send(Type::kJobJoin, wire::JobJoin{{}, job.admitted.secret});
  pump();
  EXPECT_EQ(asker.expect<wire::Error>(Type::kError).code, wire::kErrorUnknownJob);
  EXPECT_EQ(manager_->node().jobs.size(), 1u);
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

/// A process without CUDA that has this in its environment. It lives as long as the object.
class Bystander {
 public:
  explicit Bystander(const std::string& variable) {
    std::string program = "/bin/sleep", duration = "infinity", entry = variable;
    char* arguments[] = {program.data(), duration.data(), nullptr};
    char* environment[] = {entry.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environment), 0);
  }
  ~Bystander() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

TEST_F(ManagerTest, AJobLivesOnInAProcessThatHasNotJoinedAlsoForTheNextManager) {
  FakeJob job = admit(100 * kMiB);
  auto bystander = std::make_unique<Bystander>(cat("PLEXRL_JOB_ID=", id_text(job.admitted.job)));
  job.runner.kill();
  pump();
  ASSERT_EQ(manager_->node().jobs.size(), 1u);
  join(job);
  crash_manager();
  start_manager();
  ASSERT_EQ(manager_->node().jobs.size(), 1u);
  join(job);
  bystander.reset();
  while (!manager_->node().jobs.empty()) manager_->run_once(std::chrono::nanoseconds(-1));
}

TEST_F(ManagerTest, ProcessesOfOtherJobsKeepNoJobAlive) {
  FakeJob job = admit(100 * kMiB);
  const std::string id = id_text(job.admitted.job);
  const Bystander longer(cat("PLEXRL_JOB_ID=", id, "0"));
  const Bystander other(cat("OLD_PLEXRL_JOB_ID=", id));
  job.runner.kill();
  while (!manager_->node().jobs.empty()) manager_->run_once(std::chrono::nanoseconds(-1));
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

TEST_F(ManagerTest, WhoUnpinsIsAnsweredOnlyWhereItAsks) {
  FakeJob job = admit(256 * kMiB);
  FakeProcess process = join_with(job, {0}, 100 * kMiB);
  const auto pin = [&](std::uint32_t unpageable, std::uint64_t request) {
    process.peer.send(Type::kPin, wire::Charge{0, unpageable, 40 * kMiB}, request);
    pump();
  };
  const auto unpageable = [&] {
    return manager_->node().ledger.unpageable(process.welcome.session, 0);
  };
  pin(1, 3);
  EXPECT_EQ(process.peer.expect<wire::Charged>(Type::kCharged).granted, 1u);
  EXPECT_EQ(unpageable(), 40 * kMiB);
  pin(0, 0);
  EXPECT_FALSE(process.peer.next().has_value());
  EXPECT_EQ(unpageable(), 0u);
  pin(0, 4);  // an older shim
  EXPECT_EQ(process.peer.expect<wire::Charged>(Type::kCharged).granted, 1u);
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
  // Each process is told how much of its memory that may be.
  std::uint64_t told = 0;
  for (const auto& [id, session] : manager_->node().sessions) {
    told += static_cast<const wire::ControlPage*>(session->control.data())->may_leave_bytes;
  }
  EXPECT_LE(told, made);
  EXPECT_GE(told, made - 2 * a.welcome.chunk_bytes);
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

}  // namespace
}  // namespace plexrl::nodemgr::test
