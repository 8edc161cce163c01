#include "nodemgr/profiles.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

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
  EXPECT_EQ(Profiles(folder).known(1000, "train").overhead, 0u);
  ASSERT_TRUE(Profiles(folder).learn(1000, "train", 80 * kMiB).ok());
  EXPECT_EQ(Profiles(folder).known(1000, "train").overhead, 90 * kMiB);
  EXPECT_EQ(Profiles(folder).known(1001, "train").overhead, 0u) << "another user's";
}

TEST_F(ProfilesTest, MoreCountsAtOnceAndLessByAQuarter) {
  Profiles profiles(folder);
  ASSERT_TRUE(profiles.learn(1, "a", 80 * kMiB).ok());
  ASSERT_TRUE(profiles.learn(1, "a", 160 * kMiB).ok());
  EXPECT_EQ(profiles.known(1, "a").overhead, 180 * kMiB);
  ASSERT_TRUE(profiles.learn(1, "a", 32 * kMiB).ok());
  EXPECT_EQ(profiles.known(1, "a").overhead, 144 * kMiB);  // 128 MiB and an eighth
}

TEST_F(ProfilesTest, AnyNameStaysInItsFolder) {
  Profiles profiles(folder + "/profiles");
  ASSERT_TRUE(profiles.learn(1, "../../etc/x", 80 * kMiB).ok());
  EXPECT_EQ(profiles.known(1, "../../etc/x").overhead, 90 * kMiB);
  EXPECT_EQ(profiles.known(1, ".._.._etc_x").overhead, 0u);
  EXPECT_TRUE(std::filesystem::exists(folder + "/profiles/1/%2E%2E%2F%2E%2E%2Fetc%2Fx.json"));
}

TEST_F(ProfilesTest, WhatCannotBeReadIsNotKnown) {
  Profiles profiles(folder);
  ASSERT_TRUE(profiles.learn(1, "a", 80 * kMiB).ok());
  for (const char* text : {"", "{", "[]", "{\"overhead_bytes\":-1}", "{\"overhead_bytes\":1e300}",
                           "{\"overhead_bytes\":18446744073709551615}"}) {
    std::ofstream(folder + "/1/a.json") << text;
    EXPECT_EQ(profiles.known(1, "a").overhead, 0u) << text;
  }
}

TEST_F(ProfilesTest, AFolderThatCannotBeHadIsAnError) {
  std::ofstream(folder + "/file") << "x";
  EXPECT_FALSE(Profiles(folder + "/file").learn(1, "a", kMiB).ok());
}

/// A gang that idles for 2 s after bursts of 1 s, and for 20 s after bursts of 8 s.
policy::GapProfile two_phases() {
  policy::GapProfile profile;
  for (int step = 0; step < 50; ++step) {
    profile.add(1s, 2s);
    profile.add(8s, 20s);
  }
  return profile;
}

TEST_F(ProfilesTest, WhatARunShowedOfItsGapsTheNextBeginsWith) {
  ASSERT_TRUE(Profiles(folder).learn(1, "a", 80 * kMiB).ok());
  ASSERT_TRUE(Profiles(folder).learn(1, "a", GangGaps{{3, two_phases()}}).ok());
  const Profiles::Known known = Profiles(folder).known(1, "a");
  EXPECT_EQ(known.overhead, 90 * kMiB) << "kept beside the gaps";
  ASSERT_EQ(known.gaps.size(), 1u);
  const policy::GapProfile& gaps = known.gaps.at(3);
  ASSERT_NE(gaps.after(1s), nullptr);
  EXPECT_EQ(gaps.after(1s)->quantile(0.5), 2s);
  EXPECT_EQ(gaps.after(8s)->quantile(0.5), 20s);
  EXPECT_NEAR(gaps.gaps().weight(), 16, 1e-6) << "as much as 16 that it shows itself";
  EXPECT_GT(gaps.bursts().weight(), 0);
}

TEST_F(ProfilesTest, GangsThatARunDidNotHaveStayKnown) {
  Profiles profiles(folder);
  ASSERT_TRUE(profiles.learn(1, "a", GangGaps{{1, two_phases()}}).ok());
  ASSERT_TRUE(profiles.learn(1, "a", GangGaps{{6, two_phases()}}).ok());
  ASSERT_TRUE(profiles.learn(1, "a", 80 * kMiB).ok());
  EXPECT_EQ(profiles.known(1, "a").gaps.size(), 2u);
}

TEST_F(ProfilesTest, AGangOnOtherGpusIsKnownByTheirNumberIfThatIsPlain) {
  const GangGaps gaps{{1, two_phases()}, {6, two_phases()}};
  EXPECT_EQ(find_gaps(gaps, 1), &gaps.at(1));
  EXPECT_EQ(find_gaps(gaps, 8), &gaps.at(1));
  EXPECT_EQ(find_gaps(gaps, 3), &gaps.at(6));
  EXPECT_EQ(find_gaps(gaps, 7), nullptr);
  EXPECT_EQ(find_gaps({{1, two_phases()}, {2, two_phases()}}, 4), nullptr);
}

TEST_F(ProfilesTest, GapsThatCannotBeAreLeftOut) {
  Profiles profiles(folder);
  ASSERT_TRUE(profiles.learn(1, "a", GangGaps{{1, two_phases()}}).ok());
  const char* const gangs[] = {"7",
                               "[7]",
                               "[{}]",
                               R"([{"gpus":[64]}])",
                               R"([{"gpus":[-1],"gaps":[[1,1,1]]}])",
                               R"([{"gpus":"0"}])"};
  for (const char* text : gangs) {
    std::ofstream(folder + "/1/a.json") << R"({"gangs":)" << text << "}";
    EXPECT_TRUE(profiles.known(1, "a").gaps.empty()) << text;
  }
  const char* const tables[] = {"7",          "[1]",           "[[1,1]]",     "[[-1,1,1]]",
                                "[[1,-1,1]]", "[[1,1,1e300]]", "[[121,1,1]]", R"([["1",1,1]])",
                                "{}"};
  for (const char* text : tables) {
    std::ofstream(folder + "/1/a.json") << R"({"gangs":[{"gpus":[0],"gaps":)" << text
                                        << R"(,"gaps_after":[{"burst":99,"gaps":[]},3]}]})";
    const auto known = profiles.known(1, "a");
    ASSERT_EQ(known.gaps.size(), 1u) << text;
    EXPECT_EQ(known.gaps.at(1).gaps().weight(), 0) << text;
    EXPECT_EQ(known.gaps.at(1).after(1s), nullptr) << text;
  }
}

}  // namespace
}  // namespace plexrl::nodemgr
