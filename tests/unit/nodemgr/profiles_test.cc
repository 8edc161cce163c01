#include "nodemgr/profiles.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace plexrl::nodemgr {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class ProfilesTest : public ::testing::Test {
 protected:
  ProfilesTest() {
    std::string pattern = ::testing::TempDir() + "/profilesXXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~ProfilesTest() override { std::filesystem::remove_all(folder); }
  std::string folder;
};

TEST_F(ProfilesTest, WhatARunTookIsKnownToTheNextWithAMargin) {
  EXPECT_EQ(Profiles(folder).overhead(1000, "train"), 0u);
  ASSERT_TRUE(Profiles(folder).learn(1000, "train", 80 * kMiB).ok());
  EXPECT_EQ(Profiles(folder).overhead(1000, "train"), 90 * kMiB);
  EXPECT_EQ(Profiles(folder).overhead(1001, "train"), 0u) << "another user's";
}

TEST_F(ProfilesTest, MoreCountsAtOnceAndLessByAQuarter) {
  Profiles profiles(folder);
  ASSERT_TRUE(profiles.learn(1, "a", 80 * kMiB).ok());
  ASSERT_TRUE(profiles.learn(1, "a", 160 * kMiB).ok());
  EXPECT_EQ(profiles.overhead(1, "a"), 180 * kMiB);
  ASSERT_TRUE(profiles.learn(1, "a", 32 * kMiB).ok());
  EXPECT_EQ(profiles.overhead(1, "a"), 144 * kMiB);  // 128 MiB and an eighth
}

TEST_F(ProfilesTest, AnyNameStaysInItsFolder) {
  Profiles profiles(folder + "/profiles");
  ASSERT_TRUE(profiles.learn(1, "../../etc/x", 80 * kMiB).ok());
  EXPECT_EQ(profiles.overhead(1, "../../etc/x"), 90 * kMiB);
  EXPECT_EQ(profiles.overhead(1, ".._.._etc_x"), 0u);
  EXPECT_TRUE(std::filesystem::exists(folder + "/profiles/1/%2E%2E%2F%2E%2E%2Fetc%2Fx.json"));
}

TEST_F(ProfilesTest, WhatCannotBeReadIsNotKnown) {
  Profiles profiles(folder);
  ASSERT_TRUE(profiles.learn(1, "a", 80 * kMiB).ok());
  for (const char* text : {"", "{", "[]", "{\"overhead_bytes\":-1}", "{\"overhead_bytes\":1e300}",
                           "{\"overhead_bytes\":18446744073709551615}"}) {
    std::ofstream(folder + "/1/a.json") << text;
    EXPECT_EQ(profiles.overhead(1, "a"), 0u) << text;
  }
}

TEST_F(ProfilesTest, AFolderThatCannotBeHadIsAnError) {
  std::ofstream(folder + "/file") << "x";
  EXPECT_FALSE(Profiles(folder + "/file").learn(1, "a", kMiB).ok());
}

}  // namespace
}  // namespace plexrl::nodemgr
