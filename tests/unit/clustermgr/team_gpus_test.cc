#include "clustermgr/team_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/own_folder.h"

namespace plexrl::clustermgr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

struct TeamGpus : ::testing::Test {
  const OwnFolder folder;
  const std::string path = folder.file("teams.toml");

  absl::StatusOr<std::map<std::string, int>> read(const std::string& text) const {
    std::ofstream(path) << text;
    return read_team_gpus(path);
  }
};

TEST_F(TeamGpus, AreReadFromTheirTables) {
  EXPECT_THAT(
      read("[[team]]\nname = \"red\"\ngpus = 8\n[[team]]\nname = \"blue\"\ngpus = 0\n").value(),
      ElementsAre(Pair("blue", 0), Pair("red", 8)));
  EXPECT_THAT(read("[network]\nlisten = \"x\"\n").value(), IsEmpty());
  EXPECT_THAT(read_team_gpus("").value(), IsEmpty());
}

TEST_F(TeamGpus, WhatIsWrongIsSaidWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"[[team]]\ngpus = 8\n", "toml:1: a team needs a name"},
      {"[[team]]\nname = \"red\"\n", "team 'red' needs gpus"},
      {"[[team]]\nname = \"red\"\ngpus = -1\n", "from 0 to"},
      {"[[team]]\nname = \"red\"\ngpus = 1.5\n", "from 0 to"},
      {"[[team]]\nname = \"red\"\ngpu = 1\n", "did you mean 'gpus'?"},
      {"[[team]]\nname = \"red\"\ngpus = 1\n[[team]]\nname = \"red\"\ngpus = 1\n",
       "is there twice"},
      {"team = 1\n", "[[team]]"},
  };
  for (const auto& [text, says] : cases) {
    EXPECT_THAT(std::string(read(text).status().message()), HasSubstr(says)) << text;
  }
}

}  // namespace
}  // namespace plexrl::clustermgr
