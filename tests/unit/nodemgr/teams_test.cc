#include "nodemgr/teams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "nodemgr/settings/cat.h"
#include "tests/unit/nodemgr/policy_world.h"
#include "tests/unit/own_folder.h"

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class TeamsTest : public ::testing::Test {
 protected:
  absl::StatusOr<Teams> read(const std::string& text) {
    std::ofstream(path_) << text;
    return Teams::from_file(path_);
  }
  std::string error(const std::string& text) { return message_of(read(text).status()); }

  const OwnFolder folder_;
  const std::string path_ = folder_.file("teams.toml");
};

constexpr const char* kTwo = R"(
[[team]]
name = "research"
weight = 3
members = ["alice", "1007"]
priority_max = 60
max_slowdown = 1.5
[[team]]
name = "open"
)";

TEST_F(TeamsTest, KeysAreReadAndWhatIsLeftOutHasItsDefault) {
  const Teams teams = *read(kTwo);
  const Team& research = *teams.find("research");
  EXPECT_EQ(research.weight, 3);
  EXPECT_THAT(research.members, ElementsAre("alice", "1007"));
  EXPECT_EQ(research.priority_max, 60);
  EXPECT_EQ(research.max_slowdown, 1.5);
  const Team& open = *teams.find("open");
  EXPECT_EQ(open.weight, 1);
  EXPECT_EQ(open.priority_max, 100);
  EXPECT_TRUE(open.has_member("anybody"));
  EXPECT_TRUE(read("[policy]\ngrace = '1ms'\n")->all().empty());
}

TEST_F(TeamsTest, ErrorsNameFileAndLine) {
  EXPECT_EQ(error("[[team]]\nname = 'a'\nwieght = 2\n"),
            path_ + ":3: unknown key 'wieght', did you mean 'weight'?");
  EXPECT_EQ(error("[[team]]\nname = 'a'\n\n[[team]]\nweight = 2\n"),
            path_ + ":4: a team needs a name");
  EXPECT_EQ(error("[[team]]\nname = 'a'\n[[team]]\nname = 'a'\n"),
            path_ + ":3: team 'a' is there twice");
  EXPECT_EQ(error("[[team]]\nname = 'a'\nweight = 0\n"),
            path_ + ":3: weight is not a number above 0");
  EXPECT_EQ(error("[[team]]\nname = 'a'\nweight = inf\n"),
            path_ + ":3: weight is not a number above 0");
  EXPECT_EQ(error("[[team]]\nname = 'a'\npriority_max = 101\n"),
            path_ + ":3: priority_max is not a whole number from 0 to 100");
  EXPECT_EQ(error("[[team]]\nname = 'a'\nmax_slowdown = 0.5\n"),
            path_ + ":3: max_slowdown is not a number of 1 or more");
  EXPECT_THAT(error("[[team]]\nname = 'a'\nmembers = 'bob'\n"),
              HasSubstr(path_ + ":3: members is not a list of users"));
  EXPECT_THAT(error("[[team]]\nname = 'a'\nhbm = 'much'\n"), HasSubstr(path_ + ":3: hbm: 'much'"));
  EXPECT_THAT(error("[team]\nname = 'a'\n"),
              HasSubstr(path_ + ":1: teams are a list: write [[team]]"));
  EXPECT_THAT(error("[[team]]\nname = '" + std::string(64, 'x') + "'\n"),
              HasSubstr("longer than 63"));
  EXPECT_THAT(error("[[team]]\nname =\n"), HasSubstr(path_ + ":2: "));
}

TEST_F(TeamsTest, AJobIsInATeamThatItsUserIsAMemberOf) {
  const Teams teams = *read(kTwo);
  EXPECT_EQ(*teams.assign("research", "alice", 60), "research");
  EXPECT_EQ(*teams.assign("open", "bob", 100), "open");
  EXPECT_EQ(*teams.assign("", "alice", 50), "research") << "the first that lists her";
  EXPECT_EQ(*teams.assign("", "bob", 100), "");
  EXPECT_EQ(
      message_of(teams.assign("research", "bob", 50).status()),
      "user 'bob' is no member of team 'research': leave --team out, or ask an administrator");
  EXPECT_EQ(message_of(teams.assign("", "alice", 61).status()),
            "priority 61 is above what team 'research' may have: give --priority 60 or less");
  EXPECT_EQ(message_of(teams.assign("reserch", "alice", 1).status()),
            "this node has no team 'reserch', did you mean 'research'? (it has research, open)");
}

TEST_F(TeamsTest, WhereNoTeamIsConfiguredEveryNameIsOne) {
  EXPECT_EQ(*Teams().assign("whatever", "bob", 100), "whatever");
}

TEST_F(TeamsTest, ATeamThatIsGoneWeighsOneAgain) {
  const Teams before = *read(kTwo);
  const Teams after = *read("[[team]]\nname = 'open'\nweight = 2\n");
  EXPECT_THAT(after.weights_after(before), ElementsAre(Pair("open", 2), Pair("research", 1)));
}

TEST_F(TeamsTest, AQuotaOfNothingIsNotTheSameAsNone) {
  const Quotas quotas =
      read("[[team]]\nname = 'a'\nhost = '8GiB'\ndisk = '0'\n")->find("a")->quotas;
  EXPECT_EQ(quotas.hbm, std::nullopt);
  EXPECT_EQ(quotas.host, std::uint64_t{8} << 30);
  EXPECT_EQ(quotas.disk, 0u);
}

TEST_F(TeamsTest, TeamsOfWeightsOneAndThreeGetTheirSharesOfTheGpu) {
  using namespace policy;
  using namespace policy::test;
  Config config;
  config.grace = 1ms;
  World world(config, {{0, 1'000'000}}, 1);
  const Teams teams = *read("[[team]]\nname = 'light'\n[[team]]\nname = 'heavy'\nweight = 3\n");
  for (const auto& [team, weight] : teams.weights_after(Teams())) world.weigh(team, weight);
  Habit habit{.bytes = 250'000, .burst = 1000s, .job = "a", .team = "light"};
  const GangId light = world.add(habit, 0s);
  habit.team = "heavy";
  habit.job = "b";
  const GangId heavy = world.add(habit, 0s);
  world.run_until(300s);
  EXPECT_NEAR(world.served(light).count() / 300e9, 0.25, 0.01);
  EXPECT_NEAR(world.served(heavy).count() / 300e9, 0.75, 0.01);
  EXPECT_THAT(world.breaches(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace plexrl::nodemgr
