// Quotas of teams and of each job, as jobs and administrators meet them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "nodemgr/ids.h"
#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class QuotasTest : public ManagerTest {
 protected:
  /// As `plexrl-ctl reload` with such a file.
  void take_teams(const std::string& text) {
    const std::string path = folder_ + "/teams.toml";
    std::ofstream(path) << text;
    manager_->set_teams(*Teams::from_file(path));
    manager_->reload(values_);
    pump();
  }
  FakePeer submit(const std::string& team, std::uint64_t bytes, const std::string& name = "job",
                  std::uint32_t flags = 0) {
    FakePeer runner(socket());
    wire::JobSubmit submit = job_submit(bytes, name);
    set_field(submit.team, team);
    submit.flags = flags;
    runner.send(Type::kJobSubmit, submit);
    pump();
    return runner;
  }
  std::uint64_t promised(FakePeer& runner) {
    return runner.expect<wire::JobAdmitted>(Type::kJobAdmitted).promised_bytes;
  }
  std::string notice(FakePeer& runner, Type type) {
    return field_text(runner.expect<wire::JobNotice>(type).text);
  }
  nlohmann::json limits_of(const std::string& team) {
    const nlohmann::json answer = admin("limits");
    for (const auto& one : answer["teams"]) {
      if (one["name"] == team) return one;
    }
    return nullptr;
  }
};

constexpr const char* kTwoTeams =
    "[[team]]\nname = 'a'\nhbm = '300MiB'\nhost = '500MiB'\n[[team]]\nname = 'b'\n";

TEST_F(QuotasTest, ATeamThatHasUsedItsQuotaWaitsForAJobOfItsOwnAndNobodyElseDoes) {
  take_teams(kTwoTeams);
  FakePeer first = submit("a", 300 * kMiB);
  EXPECT_EQ(promised(first), 300 * kMiB);
  FakePeer second = submit("a", 300 * kMiB, "second");
  EXPECT_THAT(notice(second, Type::kJobQueued),
              HasSubstr("team 'a' may have 500MiB of host memory and the node's 0B of disk"));
  FakePeer impatient = submit("a", 300 * kMiB, "impatient", wire::kJobNoWait);
  EXPECT_THAT(notice(impatient, Type::kJobRefused), HasSubstr("it would be 600MiB"));
  FakePeer other = submit("b", 400 * kMiB);
  EXPECT_EQ(promised(other), 400 * kMiB);
  EXPECT_EQ(limits_of("a")["hbm_promised_bytes"], 300 * kMiB);
  EXPECT_EQ(limits_of("a")["promised_bytes"], 300 * kMiB);
  EXPECT_EQ(limits_of("b")["hbm_bytes"], nullptr);
  first.kill();
  std::optional<Packet> packet;
  pump_until_readable(second, packet);
  EXPECT_EQ(packet->type, Type::kJobAdmitted);
}

TEST_F(QuotasTest, WhatATeamMayNeverHaveIsRefusedAtOnce) {
  take_teams(kTwoTeams);
  FakePeer runner = submit("a", 302 * kMiB);
  EXPECT_THAT(notice(runner, Type::kJobRefused),
              HasSubstr("which will never fit: lower --memory, or ask an administrator"));
  EXPECT_TRUE(manager_->node().jobs.empty());
}

TEST_F(QuotasTest, WhoNamesNoFigureTakesWhatTheQuotaLeaves) {
  take_teams(kTwoTeams);
  FakePeer first = submit("a", 0);
  EXPECT_EQ(promised(first), 300 * kMiB);
  FakePeer second = submit("a", 0, "second");
  EXPECT_EQ(promised(second), 200 * kMiB);
  FakePeer third = submit("a", 0, "third");
  notice(third, Type::kJobQueued);
}

TEST_F(QuotasTest, ASmallerQuotaBreaksNoPromiseAndLetsNobodyElseIn) {
  take_teams("[[team]]\nname = 'a'\nhbm = '400MiB'\nhost = '400MiB'\n");
  FakePeer first = submit("a", 400 * kMiB);
  promised(first);
  FakePeer second = submit("a", 200 * kMiB, "second");
  notice(second, Type::kJobQueued);
  FakePeer third = submit("a", 200 * kMiB, "third");
  notice(third, Type::kJobQueued);
  FakePeer small = submit("a", 50 * kMiB, "small");
  notice(small, Type::kJobQueued);
  take_teams("[[team]]\nname = 'a'\nhbm = '100MiB'\n");
  EXPECT_FALSE(first.next().has_value());
  EXPECT_EQ(limits_of("a")["hbm_promised_bytes"], 400 * kMiB);
  // Both can never have so much any more.
  EXPECT_THAT(notice(second, Type::kJobRefused), HasSubstr("never fit"));
  EXPECT_THAT(notice(third, Type::kJobRefused), HasSubstr("never fit"));
  EXPECT_THAT(notice(small, Type::kJobQueued),
              HasSubstr("may be promised 100MiB of HBM; its jobs have been promised 400MiB"));
  EXPECT_EQ(manager_->node().jobs.size(), 2u);
  take_teams("[[team]]\nname = 'a'\n");
  EXPECT_EQ(promised(small), 50 * kMiB);
}

TEST_F(QuotasTest, EachJobMayHaveAQuotaWithATeamOrWithout) {
  ASSERT_TRUE(values_.set("job.hbm", "100MiB", "test").ok());
  manager_->reload(values_);
  FakePeer large = submit("", 102 * kMiB);
  EXPECT_THAT(notice(large, Type::kJobRefused), HasSubstr("a job may be promised 100MiB of HBM"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(admit(100 * kMiB).admitted.promised_bytes, 100 * kMiB);
  FakePeer modest = submit("", 0);
  EXPECT_EQ(promised(modest), 100 * kMiB);
  EXPECT_EQ(admin("jobs")["jobs"][0]["limit_bytes"], 100 * kMiB);
}

TEST_F(QuotasTest, AnAdministratorChangesLimitsWhichOutliveTheManagerAndAReload) {
  take_teams(kTwoTeams);
  FakePeer first = submit("a", 300 * kMiB);
  promised(first);
  FakePeer second = submit("a", 300 * kMiB, "second");
  notice(second, Type::kJobQueued);
  const nlohmann::json answer =
      tell({{"verb", "limits"}, {"team", "a"}, {"set", {{"host", 600 * kMiB}}}});
  EXPECT_EQ(answer["teams"][0]["host_bytes"], 600 * kMiB);
  EXPECT_THAT(answer["teams"][0]["changed"], ElementsAre("host"));
  pump();
  promised(second);
  tell({{"verb", "limits"}, {"each_job", true}, {"set", {{"hbm", 200 * kMiB}, {"disk", 0}}}});
  take_teams(kTwoTeams);
  crash_manager();
  start_manager();
  take_teams(kTwoTeams);
  EXPECT_EQ(limits_of("a")["host_bytes"], 600 * kMiB);
  EXPECT_EQ(admin("limits")["each_job"]["hbm_bytes"], 200 * kMiB);
  EXPECT_EQ(admin("limits")["each_job"]["disk_bytes"], 0);
  FakePeer large = submit("b", 202 * kMiB);
  notice(large, Type::kJobRefused);
  tell({{"verb", "limits"}, {"each_job", true}, {"set", {{"hbm", nullptr}, {"disk", nullptr}}}});
  tell({{"verb", "limits"}, {"team", "a"}, {"set", {{"host", "file"}}}});
  EXPECT_EQ(limits_of("a")["host_bytes"], 500 * kMiB);
  EXPECT_THAT(limits_of("a")["changed"], ElementsAre());
  FakePeer again = submit("b", 202 * kMiB);
  promised(again);
  crash_manager();
  start_manager();
  take_teams(kTwoTeams);
  EXPECT_EQ(limits_of("a")["host_bytes"], 500 * kMiB);
}

TEST_F(QuotasTest, WhatMakesNoSenseChangesNothing) {
  take_teams(kTwoTeams);
  const auto error = [&](const nlohmann::json& request) { return tell(request)["error"].dump(); };
  EXPECT_THAT(error({{"verb", "limits"}, {"team", "c"}, {"set", {{"hbm", 1}}}}),
              HasSubstr("no [[team]] of the settings file has the name 'c'"));
  EXPECT_THAT(error({{"verb", "limits"}, {"set", {{"hbm", 1}}}}), HasSubstr("each_job"));
  EXPECT_THAT(error({{"verb", "limits"}, {"team", "a"}, {"set", {{"hmb", 1}}}}),
              HasSubstr("no limit 'hmb'"));
  EXPECT_THAT(error({{"verb", "limits"}, {"team", "a"}, {"set", nlohmann::json::object()}}),
              HasSubstr("names no limit"));
  for (const nlohmann::json& value : {nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json("x"),
                                      nlohmann::json(~std::uint64_t{0})}) {
    EXPECT_THAT(error({{"verb", "limits"}, {"team", "a"}, {"set", {{"host", 7}, {"hbm", value}}}}),
                HasSubstr("a limit is a number of bytes"));
  }
  EXPECT_EQ(limits_of("a")["host_bytes"], 500 * kMiB);
}

TEST_F(QuotasTest, AJobThatWouldWaitForTheOneItIsInsideOfIsRefused) {
  take_teams("[[team]]\nname = 'a'\nhost = '400MiB'\n");
  FakePeer outer = submit("a", 300 * kMiB, "outer");
  const auto admitted = outer.expect<wire::JobAdmitted>(Type::kJobAdmitted);
  FakePeer inner(socket());
  inner.send(Type::kJobParent, wire::JobParent{admitted.job});
  wire::JobSubmit submit = job_submit(200 * kMiB, "inner");
  set_field(submit.team, "a");
  inner.send(Type::kJobSubmit, submit);
  pump();
  const std::string text = notice(inner, Type::kJobRefused);
  EXPECT_THAT(text, HasSubstr("wait for ever for job 'outer'"));
  EXPECT_THAT(text, HasSubstr("it would be 500MiB): be part of it"));
}

TEST_F(QuotasTest, ExplainTellsTheQuotasOfAJobThatRunsAndOfOneThatWaits) {
  take_teams(kTwoTeams);
  FakePeer first = submit("a", 300 * kMiB, "first");
  promised(first);
  FakePeer second = submit("a", 300 * kMiB, "second");
  notice(second, Type::kJobQueued);
  const nlohmann::json jobs = admin("jobs")["jobs"];
  for (const auto& job : jobs) {
    EXPECT_EQ(job["limit_bytes"], 300 * kMiB);
    const nlohmann::json explained = tell({{"verb", "explain"}, {"job", job["id"]}})["explain"];
    ASSERT_EQ(explained["quotas"].size(), 2u);
    EXPECT_EQ(explained["quotas"][0],
              "team 'a' may be promised 300MiB of HBM; its jobs have been promised 300MiB");
    if (job["name"] == "second") {
      EXPECT_THAT(explained["text"].get<std::string>(),
                  HasSubstr("it is not admitted: team 'a' may have 500MiB of host memory"));
    }
  }
}

}  // namespace
}  // namespace plexrl::nodemgr::test
