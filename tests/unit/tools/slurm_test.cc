#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/tools/fake_trace.h"
#include "tools/run/slurm_launch.h"
#include "tools/run/slurm_step.h"
#include "tools/slurm/slurm_queries.h"
#include "tools/slurm/spank_options.h"

namespace plexrl {
namespace {

using run::EnvBlock;
using run::Options;
using run::SlurmUse;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using trace::ScratchFolder;

Options job(std::vector<std::string> command = {"python", "train.py"}) {
  Options options;
  options.name = "train";
  options.cluster = "head:7460";
  options.command = std::move(command);
  return options;
}

EnvBlock environment(std::vector<const char*> entries = {}) {
  entries.push_back(nullptr);
  return EnvBlock(entries.data());
}

/// One of Slurm's programs that gives this answer, and the words that it was asked with.
slurm::Ask answers(int status, const std::string& text, std::vector<std::string>* asked = nullptr) {
  return [=](const std::vector<std::string>& words) {
    if (asked != nullptr) *asked = words;
    return slurm::ProgramOutput{.status = status, .text = text};
  };
}

TEST(SlurmUse, AutoMeansWhereThereIsASlurmAndNotInsideOfItsJobs) {
  ScratchFolder root;
  const auto use = [&](const EnvBlock& env) { return run::slurm_use(job(), env, root.path()); };
  const EnvBlock env = environment({"PATH=/none:/bin"});
  EXPECT_EQ(use(env), SlurmUse::kNo);
  root.write("bin/srun", "#!/bin/sh\n");
  std::filesystem::permissions(root.path("bin/srun"), std::filesystem::perms::owner_all);
  EXPECT_EQ(use(env), SlurmUse::kNo);  // it is not configured
  root.write("etc/slurm/slurm.conf", "");
  EXPECT_EQ(use(env), SlurmUse::kSrun);
  EXPECT_EQ(use(environment({"PATH=/bin", "SLURM_JOB_ID=5"})), SlurmUse::kNo);
  EXPECT_EQ(use(environment({"PATH=/bin", "SLURM_CONF=/nowhere/slurm.conf"})), SlurmUse::kNo);
}

TEST(SlurmUse, WhatIsSaidCounts) {
  Options options = job();
  options.slurm = "sbatch";
  EXPECT_EQ(run::slurm_use(options, environment({"SLURM_JOB_ID=5"})), SlurmUse::kSbatch);
  options.slurm = "no";
  EXPECT_EQ(run::slurm_use(options, environment()), SlurmUse::kNo);
  options.slurm = "srun";
  EXPECT_EQ(run::slurm_use(options, environment()), SlurmUse::kSrun);
  options.placement = "ab";  // the one on the node
  EXPECT_EQ(run::slurm_use(options, environment()), SlurmUse::kNo);
}

TEST(SlurmLaunch, TheJobIsTheSameOnItsNode) {
  Options options = job({"sh", "-c", "a b"});
  options.gpus = 2;
  options.team = "red";
  options.priority = 7;
  options.memory_bytes = 1 << 30;
  options.max_wait_ns = 5;
  options.max_slowdown = 1.05;
  options.no_wait = options.require = options.may_be_checkpointed = true;
  options.apart_from = {"x", "y"};
  options.simgpu = "name=a";
  EXPECT_THAT(run::node_command(options, environment(), "/usr/bin/plexrl-run", "abc"),
              ElementsAre("/usr/bin/plexrl-run", "--cluster=head:7460", "--placement=abc",
                          "--name=train", "--gpus=2", "--priority=7", "--evict=checkpoint",
                          "--export=job", "--team=red", "--memory=1073741824", "--max-wait=5ns",
                          "--max-slowdown=1.05", "--no-wait", "--require", "--apart-from=x",
                          "--apart-from=y", "--simgpu=name=a", "--", "sh", "-c", "a b"));
  // The node's environment may name another one.
  EXPECT_THAT(run::node_command(options, environment({"PLEXRL_SIMGPU=name=a"}), "r", "abc"),
              Not(Contains("--simgpu=name=a")));
}

TEST(SlurmLaunch, SrunAsksForTheNodeAndTheCount) {
  Options options = job();
  options.gpus = 2;
  options.slurm_options = " --time=5  --nodes=9 ";
  EXPECT_THAT(run::srun_command(options, "a1", "abc", {"r", "--", "x"}),
              ElementsAre("srun", "--quiet", "--disable-status", "--time=5", "--nodes=9",
                          "--nodelist=a1", "--nodes=1", "--ntasks=1", "--gres=plexrl:2",
                          "--job-name=train", "--comment=plexrl:abc", "--", "r", "--", "x"));
  options.no_wait = true;
  EXPECT_THAT(run::srun_command(options, "a1", "abc", {}), Contains("--immediate=5"));
}

TEST(SlurmLaunch, AScriptHasTheWordsAsTheyAre) {
  EXPECT_THAT(run::sbatch_command(job(), "a1", "abc", {"r", "it's", "a b", "$HOME", ""}),
              Contains("--wrap=exec 'r' 'it'\\''s' 'a b' '$HOME' ''"));
}

TEST(SlurmLaunch, SlurmsFailuresAreToldFromTheJobs) {
  EnvBlock env = environment({"SLURM_EXIT_IMMEDIATE=4"});
  run::prepare_for_srun(env);
  EXPECT_STREQ(env.get("SLURM_EXIT_ERROR"), "125");
  EXPECT_STREQ(env.get("SLURM_EXIT_IMMEDIATE"), "4");  // the user's
  run::leave_srun(env);
  EXPECT_EQ(env.get("SLURM_EXIT_ERROR"), nullptr);
  EXPECT_STREQ(env.get("SLURM_EXIT_IMMEDIATE"), "4");
}

TEST(SlurmQueries, AControllerThatIsDownIsToldInOneLine) {
  EXPECT_TRUE(slurm::check_controller(answers(0, "Slurmctld(primary) at head is UP\n")).ok());
  const auto down = slurm::check_controller(
      answers(1, "Slurmctld(primary) at head is DOWN\n*****\n** RESTORE SLURMCTLD **\n*****\n"));
  EXPECT_EQ(
      down.message(),
      "Slurm's controller does not answer (scontrol ping: Slurmctld(primary) at head is DOWN)");
  EXPECT_THAT(
      std::string(slurm::check_controller(answers(127, "scontrol can't be executed")).message()),
      HasSubstr("scontrol can't be executed"));
}

TEST(SlurmQueries, ANodeHasStateReasonAndSlots) {
  const auto node = slurm::parse_node(
      "NodeName=a1 Arch=x86_64 CPUAlloc=0 Gres=gpu:a100:2(S:0-1),plexrl:8(S:0) NodeAddr=a1 "
      "State=IDLE+DRAIN ThreadsPerCore=1 Reason=a broken disk [root@2026-11-30T20:00:00]\n");
  EXPECT_EQ(node.state, "IDLE+DRAIN");
  EXPECT_EQ(node.reason, "a broken disk [root@2026-11-30T20:00:00]");
  EXPECT_EQ(node.plexrl_slots, 8);
  EXPECT_FALSE(node.takes_jobs());
  const auto other = slurm::parse_node("NodeName=a2 Gres=(null) State=MIXED+COMPLETING\n");
  EXPECT_EQ(other.plexrl_slots, 0);
  EXPECT_TRUE(other.takes_jobs());
  EXPECT_FALSE(slurm::parse_node("State=IDLE*").takes_jobs());
  EXPECT_FALSE(slurm::parse_node("State=DOWN").takes_jobs());
  EXPECT_EQ(slurm::parse_node("").state, "");
}

TEST(SlurmQueries, ANodeThatSlurmDoesNotKnow) {
  EXPECT_THAT(
      std::string(slurm::find_node(answers(1, "Node a9 not found\n"), "a9").status().message()),
      AllOf(HasSubstr("knows no node 'a9'"), HasSubstr("plexrl-nodemgr --node")));
  EXPECT_THAT(
      std::string(
          slurm::find_node(answers(1, "slurm_load_node error: x\n"), "a9").status().message()),
      HasSubstr("Slurm does not tell of node a9: slurm_load_node error: x"));
}

TEST(SlurmQueries, TheJobThatWaitsIsFoundByItsComment) {
  const char* const lines =
      "4|(null)|N/A|Priority\n5|plexrl:ab|2026-11-30T21:00:00|Resources\n6|plexrl:c|N/"
      "A|(odd|one)\n";
  const auto found = slurm::parse_pending(lines, "plexrl:ab");
  ASSERT_TRUE(found);
  EXPECT_EQ(
      slurm::explain_pending(*found, "a1", "4 (x)"),
      "waiting in Slurm as job 5: others have what it needs of a1 (Resources); Slurm expects to "
      "start it at 2026-11-30T21:00:00");
  const auto other = slurm::parse_pending(lines, "plexrl:c");
  ASSERT_TRUE(other);
  EXPECT_EQ(slurm::explain_pending(*other, "a1", ""), "waiting in Slurm as job 6: (odd|one)");
  EXPECT_FALSE(slurm::parse_pending(lines, "plexrl:a"));
  EXPECT_FALSE(slurm::parse_pending("slurm_load_jobs error\n|\n", "plexrl:a"));
  EXPECT_EQ(
      slurm::explain_pending({.id = "7", .reason = "Resources", .expected = ""}, "a1", "4 (x)"),
      "waiting in Slurm as job 7: others have what it needs of a1 (Resources); when one of "
      "these ends: 4 (x)");
}

TEST(SlurmQueries, AJobThatSlurmHasForgottenIsOver) {
  EXPECT_EQ(slurm::has_job(answers(0, "PENDING\n"), "5"), true);
  EXPECT_EQ(slurm::has_job(answers(0, "\n"), "5"), false);
  EXPECT_EQ(slurm::has_job(answers(1, "slurm_load_jobs error: Invalid job id specified\n"), "5"),
            false);
  EXPECT_EQ(slurm::has_job(answers(1, "slurm_load_jobs error: Unable to contact\n"), "5"),
            std::nullopt);
}

TEST(ProgramOutput, TellsStatusAndText) {
  std::vector<char*> environment = {nullptr};
  const auto said =
      slurm::output_of({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, environment);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said->status, 3);
  EXPECT_EQ(said->text, "out\nerr\n");
  EXPECT_EQ(slurm::output_of({"/no/such/program"}, environment)->status, 127);
  EXPECT_EQ(slurm::output_of({"/bin/sh", "-c", "kill -9 $$"}, environment)->status, 137);
}

TEST(SpankOptions, KeysAreThoseOfPlexrlRun) {
  EXPECT_THAT(slurm::parse_spank_options("").words, ElementsAre());
  EXPECT_THAT(slurm::parse_spank_options("team=red,,priority=7,require,simgpu=name=a,gpus=2").words,
              ElementsAre("--team=red", "--priority=7", "--require", "--simgpu=name=a,gpus=2"));
  EXPECT_THAT(slurm::parse_spank_options("simgpu").words, ElementsAre("--simgpu"));
  EXPECT_EQ(slurm::parse_spank_options("team=red,").error, "");
}

TEST(SpankOptions, WhatIsWrongIsTold) {
  EXPECT_THAT(slurm::parse_spank_options("prio=7").error,
              AllOf(HasSubstr("unknown key 'prio'"), HasSubstr("priority")));
  EXPECT_THAT(slurm::parse_spank_options("team").error, HasSubstr("team needs a value: team=…"));
  EXPECT_THAT(slurm::parse_spank_options("require=1").error, HasSubstr("require stands alone"));
  EXPECT_THAT(slurm::parse_spank_options("=x").error, HasSubstr("unknown key ''"));
  EXPECT_THAT(slurm::parse_spank_options("cluster=h:1").error, HasSubstr("unknown key 'cluster'"));
}

TEST(SlurmStep, TheAnswerIsWhatIsDifferent) {
  const std::string answer = run::SlurmStep::answer(environment({"A=1", "B=2", "C=3"}),
                                                    environment({"A=1", "B=5", "D=a=b"}));
  using namespace std::string_literals;
  EXPECT_EQ(answer, "=B=5\0=D=a=b\0-C\0run\0"s);
}

}  // namespace
}  // namespace plexrl
