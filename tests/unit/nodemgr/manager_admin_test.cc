#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nodemgr/ids.h"
#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

using ::testing::HasSubstr;

/// `a` runs on the only GPU, `b` waits for it.
class AdminTest : public ManagerTest {
 protected:
  AdminTest()
      : job_a(admit(100 * kMiB, "a")),
        job_b(admit(100 * kMiB, "b")),
        a(join_with(job_a, {0}, 0)),
        b(join_with(job_b, {0}, 0)) {
    run(a);
  }
  void want(FakeProcess& process) {
    process.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
    pump();
  }
  nlohmann::json tell_job(const std::string& verb, const FakeJob& job) {
    return tell({{"verb", verb}, {"job", id_text(job.admitted.job)}});
  }
  nlohmann::json job_of(const FakeJob& job) {
    const nlohmann::json answer = admin("jobs");
    for (const auto& one : answer["jobs"]) {
      if (one["id"] == id_text(job.admitted.job)) return one;
    }
    return nullptr;
  }

  FakeJob job_a, job_b;
  FakeProcess a, b;
};

TEST_F(AdminTest, APausedHolderGivesItsGpuBackAndGetsNoneUntilResumed) {
  const auto answer = tell_job("pause", job_a);
  EXPECT_EQ(answer["done"], true);
  EXPECT_EQ(answer["jobs"][0]["paused"], true);
  pump();
  drain(a);  // though nobody waits
  EXPECT_EQ(job_of(job_a)["state"], "paused");
  EXPECT_EQ(job_of(job_a)["gangs"][0]["state"], "paused");
  want(a);
  EXPECT_FALSE(a.peer.next());
  EXPECT_EQ(job_of(job_a)["state"], "paused");
  want(b);
  b.peer.expect<wire::Grant>(Type::kGrant);
  EXPECT_EQ(tell_job("resume", job_a)["jobs"][0]["state"], "waiting");
}

TEST_F(AdminTest, PauseAndPriorityOutliveTheManager) {
  tell_job("pause", job_b);
  tell({{"verb", "priority"}, {"job", id_text(job_b.admitted.job)}, {"priority", 7}});
  crash_manager();
  start_manager();
  EXPECT_EQ(job_of(job_b)["paused"], true);
  EXPECT_EQ(job_of(job_b)["priority"], 7);
  EXPECT_EQ(job_of(job_a)["paused"], false);
}

TEST_F(ManagerTest, WhatAJobShowedOfItsGapsIsKnownToItsNextRunAndToTheNextManager) {
  const auto known = [&] {
    const auto& gangs = manager_->leases().state().gangs;
    return gangs.size() == 1 ? gangs.begin()->second.profile.gaps().weight() : -1;
  };
  const auto start = [&](FakeJob& job) {
    FakeProcess process = join_with(job, {0}, 10 * kMiB);
    run(process);
    return process;
  };
  FakeJob job = admit(100 * kMiB, "loop");
  FakeProcess process = start(job);
  EXPECT_EQ(known(), 0);
  wire::Activity busy{};
  busy.count = 1;
  busy.first_is_busy = 1;
  for (int gap = 0; gap < 4; ++gap) {
    report_idle(process);
    busy.at_ns[0] = static_cast<std::uint64_t>(boot_now().count());
    process.peer.send(Type::kActivity, busy, 0);
    pump();
  }
  const double shown = known();
  EXPECT_GT(shown, 3);
  process.peer.kill();
  job.runner.kill();
  while (!manager_->node().jobs.empty()) manager_->run_once(std::chrono::nanoseconds(-1));

  FakeJob other = admit(100 * kMiB, "other");
  FakeProcess others = start(other);
  EXPECT_EQ(known(), 0) << "another job's";
  others.peer.kill();
  other.runner.kill();
  while (!manager_->node().jobs.empty()) manager_->run_once(std::chrono::nanoseconds(-1));

  for (int manager = 0; manager < 2; ++manager) {
    FakeJob again = admit(100 * kMiB, "loop");
    FakeProcess later = start(again);
    EXPECT_NEAR(known(), shown, 1e-9);
    crash_manager();
    start_manager();
    later.peer.kill();
    again.runner.kill();
    while (!manager_->node().jobs.empty()) manager_->run_once(std::chrono::nanoseconds(-1));
  }
}

TEST_F(AdminTest, AJobThatIsHeldHasItsGpuAloneUntilThatIsTakenBackAlsoUnderTheNextManager) {
  const std::string id = id_text(job_b.admitted.job);
  const auto held = tell({{"verb", "hold"}, {"job", id}, {"alone_ns", 3'600'000'000'000}});
  EXPECT_NEAR(held["jobs"][0]["alone_s"].get<double>(), 3600, 100);
  pump();
  drain(a);
  want(a);
  EXPECT_FALSE(a.peer.next());
  EXPECT_THAT(job_of(job_a)["gangs"][0]["waits_for"].dump(),
              HasSubstr("keeps the GPU for another"));
  EXPECT_THAT(tell({{"verb", "explain"}, {"job", id}})["explain"]["gangs"][0]["text"].dump(),
              HasSubstr("keeps its GPUs for it alone"));
  EXPECT_EQ(job_of(job_a)["alone_s"], nullptr);
  EXPECT_EQ(tell({{"verb", "hold"}, {"job", id}, {"alone_ns", 0}})["jobs"][0]["alone_s"], nullptr);
  pump();
  a.peer.expect<wire::Grant>(Type::kGrant);
  tell({{"verb", "hold"}, {"job", id}, {"alone_ns", 3'600'000'000'000}});
  crash_manager();
  start_manager();
  EXPECT_GT(job_of(job_b)["alone_s"], 0);
}

TEST_F(AdminTest, AHigherPriorityTakesTheGpuFromAHolderThatIsBusy) {
  want(b);
  tell({{"verb", "priority"}, {"job", id_text(job_b.admitted.job)}, {"priority", 90}});
  EXPECT_EQ(job_of(job_b)["priority"], 90);
  pump();
  drain(a);
  b.peer.expect<wire::Grant>(Type::kGrant);
}

TEST_F(AdminTest, WhatMakesNoSenseIsRefusedAndChangesNothing) {
  const std::string id = id_text(job_a.admitted.job);
  EXPECT_THAT(tell({{"verb", "priority"}, {"job", id}, {"priority", 101}})["error"].dump(),
              HasSubstr("from 0 to 100"));
  EXPECT_THAT(tell({{"verb", "priority"}, {"job", id}})["error"].dump(), HasSubstr("priority"));
  for (const nlohmann::json& length : {nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json()}) {
    EXPECT_THAT(tell({{"verb", "hold"}, {"job", id}, {"alone_ns", length}})["error"].dump(),
                HasSubstr("alone_ns"));
  }
  EXPECT_EQ(job_of(job_a)["alone_s"], nullptr);
  EXPECT_THAT(tell({{"verb", "pause"}})["error"].dump(), HasSubstr("no job has the id ''"));
  EXPECT_THAT(tell({{"verb", "explain"}, {"job", 3}})["error"].dump(), HasSubstr("no job"));
  EXPECT_THAT(tell({{"verb", "paus"}, {"job", id}})["error"].dump(), HasSubstr("'pause'"));
  EXPECT_EQ(job_of(job_a)["priority"], 50);
}

TEST_F(AdminTest, ADrainedNodeTakesNoNewJobsUntilUndrained) {
  EXPECT_EQ(tell({{"verb", "drain"}})["done"], true);
  EXPECT_EQ(admin("status")["manager"]["draining"], true);
  FakePeer runner(socket());
  runner.send(Type::kJobSubmit, job_submit(100 * kMiB, "c"));
  pump();
  EXPECT_THAT(field_text(runner.expect<wire::JobNotice>(Type::kJobQueued).text),
              HasSubstr("being drained"));
  EXPECT_EQ(job_of(job_a)["state"], "running");
  crash_manager();
  start_manager();
  EXPECT_EQ(admin("status")["manager"]["draining"], true);
  FakePeer other(socket());
  other.send(Type::kJobSubmit, job_submit(100 * kMiB, "d"));
  pump();
  other.expect<wire::JobNotice>(Type::kJobQueued);
  tell({{"verb", "undrain"}});
  pump();
  other.expect<wire::JobAdmitted>(Type::kJobAdmitted);
}

TEST_F(AdminTest, ExplainSaysWhyAJobWaitsOnFiguresThatFollowTheSettings) {
  want(b);
  const auto explain = [&] { return tell_job("explain", job_b)["explain"]["gangs"][0]; };
  const auto gang = explain();
  EXPECT_EQ(gang["state"], "waiting");
  EXPECT_EQ(gang["decision"]["kind"], "wait");
  EXPECT_THAT(gang["text"].get<std::string>(), HasSubstr("it waits for 'a': holder runs until:"));
  EXPECT_EQ(gang["now"]["holder"], id_text(job_a.admitted.job));
  EXPECT_EQ(gang["now"]["figures"]["wait_bound_ns"], 120e9);
  ASSERT_TRUE(values_.set("policy.max_wait", "60s", "test").ok());
  ASSERT_TRUE(values_.set("policy.min_quantum", "7s", "test").ok());
  manager_->reload(values_);
  EXPECT_EQ(explain()["now"]["figures"]["wait_bound_ns"], 60e9);
  EXPECT_EQ(explain()["now"]["figures"]["quantum_ns"], 7e9);
  EXPECT_THAT(tell_job("explain", job_a)["explain"]["gangs"][0]["text"].get<std::string>(),
              HasSubstr("it was given the GPU: turn"));
  tell_job("pause", job_b);
  EXPECT_THAT(explain()["text"].get<std::string>(), HasSubstr("until plexrl-ctl resume"));
}

}  // namespace
}  // namespace plexrl::nodemgr::test
