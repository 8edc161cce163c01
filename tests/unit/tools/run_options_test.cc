#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tools/run/cluster_place.h"
#include "tools/run/job_env.h"
#include "tools/run/options.h"

namespace plexrl::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

std::variant<Options, Stop> parse(std::vector<const char*> words, Variables variables = {}) {
  words.insert(words.begin(), "plexrl-run");
  words.push_back(nullptr);
  return parse_options(static_cast<int>(words.size()) - 1, words.data(),
                       [variables](const char* name) -> const char* {
                         const auto found = variables.find(name);
                         return found == variables.end() ? nullptr : found->second.c_str();
                       });
}

Options good(std::vector<const char*> words, Variables variables = {}) {
  const auto parsed = parse(std::move(words), std::move(variables));
  const Options* options = std::get_if<Options>(&parsed);
  EXPECT_NE(options, nullptr) << std::get<Stop>(parsed).error;
  return options ? *options : Options{};
}

std::string error(std::vector<const char*> words, Variables variables = {}) {
  const auto parsed = parse(std::move(words), std::move(variables));
  const Stop* stop = std::get_if<Stop>(&parsed);
  EXPECT_NE(stop, nullptr);
  if (!stop) return "";
  EXPECT_EQ(stop->status, 125);
  return stop->error;
}

TEST(RunOptions, TheCommandBeginsAtTheFirstWordThatIsNoOption) {
  EXPECT_THAT(good({"--name", "x", "python", "--name", "y"}).command,
              ElementsAre("python", "--name", "y"));
  EXPECT_THAT(good({"--", "--odd", "--", "z"}).command, ElementsAre("--odd", "--", "z"));
}

TEST(RunOptions, ABareSimgpuDoesNotEatTheCommand) {
  const Options bare = good({"--simgpu", "python"});
  EXPECT_EQ(bare.simgpu, "");
  EXPECT_THAT(bare.command, ElementsAre("python"));
  EXPECT_EQ(good({"--simgpu=name=a,gpus=2", "python"}).simgpu, "name=a,gpus=2");
  EXPECT_EQ(good({"python"}).simgpu, std::nullopt);
  EXPECT_EQ(good({"python"}, {{"PLEXRL_SIMGPU", "name=e"}}).simgpu, "name=e");
}

TEST(RunOptions, AnEmptyWordIsNotTheDefault) {
  EXPECT_THAT(error({"--memory", "", "python"}), HasSubstr("--memory: is empty"));
  EXPECT_THAT(error({"--name", "", "python"}), HasSubstr("--name: is empty"));
}

TEST(RunOptions, FlagsWinOverTheEnvironment) {
  const Variables variables = {
      {"PLEXRL_TEAM", "red"}, {"PLEXRL_PRIORITY", "7"}, {"PLEXRL_MEMORY", "1GiB"}};
  const Options from_environment = good({"x"}, variables);
  EXPECT_EQ(from_environment.team, "red");
  EXPECT_EQ(from_environment.priority, 7);
  EXPECT_EQ(from_environment.memory_bytes, 1u << 30);
  const Options from_flags = good({"--team", "blue", "--memory=2MiB", "x"}, variables);
  EXPECT_EQ(from_flags.team, "blue");
  EXPECT_EQ(from_flags.memory_bytes, 2u << 20);
}

TEST(RunOptions, AnOuterJobsPromiseIsNotTheInnerOnesWish) {
  EXPECT_EQ(good({"x"}, {{"PLEXRL_MEMORY", "1GiB"}, {"PLEXRL_JOB_ID", "00"}}).memory_bytes, 0u);
}

TEST(RunOptions, SlurmIsForPlacedJobs) {
  EXPECT_EQ(good({"x"}).slurm, "auto");
  EXPECT_EQ(good({"x"}, {{"PLEXRL_SLURM", "no"}}).slurm, "no");
  const Options options =
      good({"--cluster=h:1", "--slurm", "sbatch", "--slurm-options", "--time=5 -p a", "x"},
           {{"PLEXRL_SLURM", "no"}});
  EXPECT_EQ(options.slurm, "sbatch");
  EXPECT_EQ(options.slurm_options, "--time=5 -p a");
  EXPECT_THAT(error({"--slurm=srun", "x"}), HasSubstr("--slurm: is for jobs that a cluster"));
  EXPECT_THAT(error({"--cluster=h:1", "--slurm=yes", "x"}), HasSubstr("--slurm"));
  EXPECT_THAT(error({"x"}, {{"PLEXRL_SLURM", "yes"}}), HasSubstr("give auto, srun, sbatch or no"));
}

TEST(RunOptions, ContextsStayUnlessSaidOtherwise) {
  EXPECT_FALSE(good({"x"}).may_be_checkpointed);
  EXPECT_TRUE(good({"--evict=checkpoint", "x"}).may_be_checkpointed);
  EXPECT_TRUE(good({"x"}, {{"PLEXRL_EVICT", "checkpoint"}}).may_be_checkpointed);
  EXPECT_FALSE(good({"--evict=page", "x"}, {{"PLEXRL_EVICT", "checkpoint"}}).may_be_checkpointed);
  EXPECT_FALSE(
      good({"x"}, {{"PLEXRL_EVICT", "checkpoint"}, {"PLEXRL_JOB_ID", "00"}}).may_be_checkpointed);
}

TEST(RunOptions, MemoryIsExportedToTheJobUnlessSaidOtherwise) {
  EXPECT_FALSE(good({"x"}).exports_are_real);
  EXPECT_TRUE(good({"--export=real", "x"}).exports_are_real);
  EXPECT_TRUE(good({"x"}, {{"PLEXRL_EXPORT", "real"}}).exports_are_real);
  EXPECT_FALSE(good({"--export=job", "x"}, {{"PLEXRL_EXPORT", "real"}}).exports_are_real);
  EXPECT_FALSE(good({"x"}, {{"PLEXRL_EXPORT", "real"}, {"PLEXRL_JOB_ID", "00"}}).exports_are_real);
}

TEST(RunOptions, TheNameIsTheBaseNameAndFitsTheWire) {
  EXPECT_EQ(good({"/usr/bin/python3", "x"}).name, "python3");
  const std::string long_name(64, 'n');
  EXPECT_THAT(error({"--name", long_name.c_str(), "x"}), HasSubstr("longer than 63 bytes"));
  // Nobody has to give a name because of how a command is called.
  EXPECT_EQ(good({("/bin/" + long_name).c_str()}).name, std::string(63, 'n'));
  EXPECT_EQ(good({(std::string(62, 'n') + "\xc3\xa9").c_str()}).name, std::string(62, 'n'));
  EXPECT_EQ(good({"tr\xe4ning\n"}).name, "tr?ning?");
  EXPECT_EQ(good({"tr\xc3\xa4ning"}).name, "tr\xc3\xa4ning");
  EXPECT_THAT(error({"--name", "tr\xe4ning", "x"}), HasSubstr("UTF-8"));
  EXPECT_THAT(error({"--team", "\xff", "x"}), HasSubstr("UTF-8"));
}

TEST(RunOptions, ComplaintsNameTheValue) {
  EXPECT_THAT(error({"--memory", "lots", "x"}), HasSubstr("lots"));
  EXPECT_THAT(error({"--memory", "5", "x"}),
              HasSubstr("--memory: '5' is 5 bytes, less than 2MiB: write a size with its unit, as "
                        "in 5GiB"));
  for (const char* small : {"0", "1MiB", "0.5 MiB", "2097151"}) {
    EXPECT_THAT(error({"--memory", small, "x"}), HasSubstr("less than 2MiB")) << small;
  }
  EXPECT_EQ(good({"--memory", "2097152", "x"}).memory_bytes, 2u << 20);
  EXPECT_THAT(error({"--max-wait", "10", "x"}), HasSubstr("10"));
  for (const char* ratio : {"1", "0.5", "5%", "nan", "inf"}) {
    EXPECT_THAT(error({"--max-slowdown", ratio, "x"}), HasSubstr(ratio));
  }
  EXPECT_EQ(good({"--max-slowdown", "1.05", "x"}).max_slowdown, 1.05);
  EXPECT_THAT(error({"--priority", "-1", "x"}), HasSubstr("-1"));
  EXPECT_THAT(error({"x"}, {{"PLEXRL_PRIORITY", "high"}}), HasSubstr("PLEXRL_PRIORITY=high"));
  EXPECT_THAT(error({"x"}, {{"PLEXRL_MEMORY", "much"}}), HasSubstr("PLEXRL_MEMORY: "));
  EXPECT_THAT(error({"x"}, {{"PLEXRL_EVICT", "never"}}), HasSubstr("PLEXRL_EVICT=never"));
  EXPECT_THAT(error({"--memory", "much", "x"}, {}), HasSubstr("--memory: "));
  EXPECT_THAT(error({}), HasSubstr("no command"));
  EXPECT_THAT(error({
                  "--",
              }),
              HasSubstr("no command"));
  EXPECT_THAT(error({"--reqire", "x"}), HasSubstr("did you mean --require?"));
}

EnvBlock block(std::vector<const char*> entries) {
  entries.push_back(nullptr);
  return EnvBlock(entries.data());
}

TEST(JobEnv, ThePreloadIsInFrontOnce) {
  EnvBlock env = block({"LD_PRELOAD=/x/libjemalloc.so /old/libplexrl.so:/new/libplexrl.so"});
  preload(env, "/new/libplexrl.so");
  EXPECT_STREQ(env.get("LD_PRELOAD"), "/new/libplexrl.so:/x/libjemalloc.so");
  preload(env, "/new/libplexrl.so");
  EXPECT_STREQ(env.get("LD_PRELOAD"), "/new/libplexrl.so:/x/libjemalloc.so");
}

TEST(JobEnv, LeavingAJobLeavesNothingOfIt) {
  EnvBlock env = block({"LD_PRELOAD=/new/libplexrl.so", "PLEXRL_JOB_ID=1", "PLEXRL_JOB_SECRET=2",
                        "PLEXRL_JOB_NAME=3", "PLEXRL_JOB_NAMES=kept"});
  leave_job(env);
  EXPECT_EQ(env.get("LD_PRELOAD"), nullptr);
  EXPECT_EQ(env.get("PLEXRL_JOB_ID"), nullptr);
  EXPECT_EQ(env.get("PLEXRL_JOB_SECRET"), nullptr);
  EXPECT_STREQ(env.get("PLEXRL_JOB_NAMES"), "kept");
}

TEST(JobEnv, ANameIsSetOnce) {
  EnvBlock env = block({"A=1", "B=2", "A=3"});
  env.set("A", "4");
  EXPECT_EQ(env.pointers().size(), 3u);  // B, A and the end
  EXPECT_STREQ(env.get("A"), "4");
}

TEST(RunOptions, WhatIsForAClusterNeedsOne) {
  const Options placed = good({"--cluster", "head:7460", "--gpus", "2", "--apart-from", "a",
                               "--apart-from", "b", "python"});
  EXPECT_EQ(placed.cluster, "head:7460");
  EXPECT_EQ(placed.gpus, 2);
  EXPECT_THAT(placed.apart_from, ElementsAre("a", "b"));
  EXPECT_THAT(placed.command, ElementsAre("python"));
  EXPECT_EQ(good({"--cluster=head:7460", "python"}).gpus, 1);
  EXPECT_THAT(error({"--gpus", "2", "python"}), HasSubstr("--cluster HOST:PORT"));
  EXPECT_THAT(error({"--apart-from", "a", "python"}), HasSubstr("--cluster HOST:PORT"));
  EXPECT_THAT(error({"--cluster", "h:1", "--gpus", "0", "python"}), HasSubstr("from 1 to 64"));
  EXPECT_THAT(error({"--cluster", "h:1", "--join", "python"}), HasSubstr("--join and --cluster"));
}

TEST(ClusterPlace, ChoosesFromGpusThatAreNamedByUuidOnly) {
  EXPECT_THAT(gpus_to_choose_from(nullptr).value(), ::testing::IsEmpty());
  EXPECT_THAT(gpus_to_choose_from("GPU-1,GPU-2").value(), ElementsAre("GPU-1", "GPU-2"));
  for (const char* bad : {"0", "", "GPU-1,1", "MIG-1", "-1"}) {
    EXPECT_THAT(std::string(gpus_to_choose_from(bad).status().message()), HasSubstr("UUID")) << bad;
  }
}

}  // namespace
}  // namespace plexrl::run
