#include "tools/sim/config_lp.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "nodemgr/settings/cat.h"
#include "tools/sim/csv.h"

namespace plexrl::sim {
namespace {

TEST(ConfigLp, SeesThatThreeHalvesAndABitNeedThreeSlots) {
  // By volume 1.53 slots; no two fit together.
  EXPECT_NEAR(config_lp({0.51, 0.51, 0.51}, 5), 3, 1e-6);
  EXPECT_NEAR(conflict_clique({0.51, 0.51, 0.51}), 3, 1e-6);
  EXPECT_NEAR(volume({0.51, 0.51, 0.51}), 1.53, 1e-9);
}

TEST(ConfigLp, KnowsTheNumberOfSharers) {
  EXPECT_NEAR(config_lp(std::vector<double>(12, 0.01), 4), 3, 1e-6);
}

TEST(ConfigLp, ThirdsFillSlots) {
  EXPECT_NEAR(config_lp(std::vector<double>(9, 1.0 / 3), 5), 3, 1e-3);
}

TEST(ConfigLp, MixtureIsBetweenVolumeAndOneSlotEach) {
  std::vector<double> loads;
  for (int i = 0; i < 200; ++i) loads.push_back(0.2 + 0.003 * (i * 37 % 200));
  double bound = config_lp(loads, 5);
  EXPECT_GE(bound, volume(loads) * 0.99);
  EXPECT_LT(bound, 200);
}

TEST(ConfigLp, NothingNeedsNothing) { EXPECT_EQ(config_lp({}, 5), 0); }

class TraceFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    path_ = testing::TempDir() + "/plexrl_sim_trace_" + std::to_string(getpid()) + ".csv";
    std::ofstream(path_) << text;
    return path_;
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_;
};

TEST_F(TraceFile, ReadsItsColumnsInAnyOrder) {
  auto jobs =
      read_trace_jobs(write("duration,x,submit_time,num_gpu\n5000,a,2000,8\n1000,b,500,1\n"));
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].submit_s, 0.5);
  EXPECT_EQ((*jobs)[1].gpus, 8);
  EXPECT_EQ((*jobs)[1].duration_s, 5);
}

TEST_F(TraceFile, WrongLineIsNamed) {
  auto jobs = read_trace_jobs(write("num_gpu,submit_time,duration\n1,2,3\n1,soon,3\n"));
  ASSERT_FALSE(jobs.ok());
  EXPECT_NE(nodemgr::message_of(jobs.status()).find("line 3"), std::string::npos);
  EXPECT_FALSE(read_trace_jobs(write("a,b\n")).ok());
  EXPECT_FALSE(read_trace_jobs(write("num_gpu,submit_time,duration\n-4,2,3\n")).ok());
  EXPECT_FALSE(read_trace_jobs("/nonexistent").ok());
}

}  // namespace
}  // namespace plexrl::sim
