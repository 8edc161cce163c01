#include "nodemgr/daemon_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/own_folder.h"

namespace plexrl::nodemgr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DaemonSettings, LevelsByFileAreThePreloadsBusiness) {
  const char* const flags[] = {"plexrl-nodemgr"};
  const char* const by_file[] = {"PLEXRL_LOG=pager:debug", nullptr};
  EXPECT_TRUE(load_settings(1, flags, by_file).ok());
  const char* const unknown[] = {"PLEXRL_LOG=loud", nullptr};
  EXPECT_FALSE(load_settings(1, flags, unknown).ok());
}

TEST(DaemonSettings, WhatChangesNothingIsNamed) {
  const char* const none[] = {nullptr};
  const char* const plain[] = {"plexrl-nodemgr", "--policy-grace", "7ms"};
  EXPECT_THAT(load_settings(3, plain, none)->without_effect, ::testing::IsEmpty());
  const char* const all[] = {"plexrl-nodemgr", "--disk-dir", "/spill", "--policy-join-wait", "2s"};
  EXPECT_THAT(load_settings(5, all, none)->without_effect, ::testing::IsEmpty());
}

TEST(DaemonSettings, HangsAreLookedForUnlessTheActionIsToWait) {
  const char* const none[] = {nullptr};
  const char* const plain[] = {"plexrl-nodemgr"};
  EXPECT_EQ(policy_config(load_settings(1, plain, none)->values).hang_after,
            std::chrono::minutes(5));
  const char* const waits[] = {"plexrl-nodemgr", "--policy-hang-action", "wait"};
  EXPECT_EQ(policy_config(load_settings(3, waits, none)->values).hang_after, policy::Duration{0});
  const char* const never[] = {"plexrl-nodemgr", "--policy-hang-after", "0"};
  EXPECT_THAT(std::string(load_settings(3, never, none).status().message()),
              HasSubstr("hang_action = \"wait\""));
}

TEST(DaemonSettings, MetricsAreServedAtAnAddressOrNot) {
  const char* const none[] = {nullptr};
  for (const char* listen : {"off", "127.0.0.1:0", "[::1]:7462"}) {
    const char* const good[] = {"plexrl-nodemgr", "--metrics-listen", listen};
    EXPECT_TRUE(load_settings(3, good, none).ok()) << listen;
  }
  const char* const bad[] = {"plexrl-nodemgr", "--metrics-listen", "7462"};
  EXPECT_THAT(std::string(load_settings(3, bad, none).status().message()),
              HasSubstr("write HOST:PORT"));
}

TEST(DaemonSettings, TheFolderOfTheDiskTierIsAbsolute) {
  const char* const none[] = {nullptr};
  const char* const relative[] = {"plexrl-nodemgr", "--disk-dir", "spill"};
  EXPECT_THAT(std::string(load_settings(3, relative, none).status().message()),
              HasSubstr("is not absolute"));
}

TEST(DaemonSettings, TeamsOfTheFileAreReadAndABadOneIsAnError) {
  const OwnFolder folder;
  const std::string path = folder.file("nodemgr.toml");
  std::ofstream(path) << "[[team]]\nname = \"a\"\nweight = 2\n";
  const char* const none[] = {nullptr};
  const char* const flags[] = {"plexrl-nodemgr", "--config", path.c_str()};
  const auto loaded = load_settings(3, flags, none);
  EXPECT_THAT(loaded->without_effect, ::testing::IsEmpty());
  EXPECT_EQ(loaded->teams.find("a")->weight, 2);
  std::ofstream(path) << "[[team]]\nname = \"a\"\nweight = \"much\"\n";
  EXPECT_THAT(std::string(load_settings(3, flags, none).status().message()),
              HasSubstr(path + ":3"));
}

}  // namespace
}  // namespace plexrl::nodemgr
