#include "clustermgr/placement/virtual_cluster.h"

#include <gtest/gtest.h>

namespace plexrl::clustermgr::placement {
namespace {

constexpr std::int64_t kGb = 1'000'000'000;

/// Trains for `work`, then leaves a gap, `steps` times.
class Bursts : public TaskSource {
 public:
  Bursts(Duration work, Duration gap, int steps) : work_(work), gap_(gap), left_(steps) {}
  bool next(Task& task) override {
    if (left_-- <= 0) return false;
    task = Task{};
    task.gang = 0;
    task.work = work_;
    task.after[0] = {1, gap_};
    task.ends_step = true;
    return true;
  }

 private:
  Duration work_;
  Duration gap_;
  int left_;
};

struct Fixture {
  VirtualCluster cluster;
  int node;
  explicit Fixture(std::int64_t hbm, MoveModel moves = {}, nodemgr::policy::Config config = {}) {
    node = cluster.add_node(VirtualNode(config, moves, {hbm}, 1));
  }
  int add(double work, double gap, int steps, std::int64_t bytes, double at = 0) {
    return cluster.add_job({{node, {"job", 1, bytes, 0}}},
                           std::make_unique<Bursts>(from_seconds(work), from_seconds(gap), steps),
                           from_seconds(at), 100);
  }
};

TEST(VirtualCluster, JobAloneTakesItsOwnTime) {
  Fixture f(10 * kGb);
  int job = f.add(2, 3, 4, 0);
  f.cluster.run_until(kNever);
  ASSERT_TRUE(f.cluster.job(job).finished);
  EXPECT_EQ(f.cluster.job(job).finished_at, from_seconds(17));
  EXPECT_EQ(f.cluster.job(job).step_ends.size(), 4u);
  EXPECT_EQ(f.cluster.gang_totals(job, 0).worked, from_seconds(8));
}

TEST(VirtualCluster, FirstLoadOfMemoryIsCharged) {
  MoveModel moves;
  moves.in_bytes_per_s = 1e9;
  Fixture f(10 * kGb, moves);
  int job = f.add(2, 3, 1, 5 * kGb);
  f.cluster.run_until(kNever);
  EXPECT_EQ(f.cluster.job(job).finished_at, from_seconds(7));
  EXPECT_EQ(f.cluster.gang_totals(job, 0).in_bytes, 5 * kGb);
}

TEST(VirtualCluster, TwoJobsFillEachOthersGaps) {
  nodemgr::policy::Config config;
  config.min_quantum = from_seconds(10);
  Fixture f(100 * kGb, {}, config);
  int a = f.add(2, 3, 20, kGb);
  int b = f.add(2, 3, 20, kGb);
  f.cluster.run_until(kNever);
  // Alone: 20·2 + 19·3 = 97 s.
  EXPECT_LT(seconds(f.cluster.job(a).finished_at), 101);
  EXPECT_LT(seconds(f.cluster.job(b).finished_at), 101);
  EXPECT_GT(seconds(f.cluster.gang_totals(a, 0).waited + f.cluster.gang_totals(b, 0).waited), 1);
}

TEST(VirtualCluster, ShortQuantaKeepTwoJobsFromFindingTheirGaps) {
  Fixture f(100 * kGb);  // 100 ms each, in turns, whenever both want to compute
  int a = f.add(2, 3, 20, kGb);
  f.add(2, 3, 20, kGb);
  f.cluster.run_until(kNever);
  EXPECT_GT(seconds(f.cluster.job(a).finished_at), 110);
}

TEST(VirtualCluster, SwitchesMoveMemoryBothWays) {
  MoveModel moves;
  moves.out_bytes_per_s = moves.in_bytes_per_s = 1e9;
  Fixture f(10 * kGb, moves);
  int a = f.add(20, 30, 3, 8 * kGb);
  int b = f.add(20, 30, 3, 8 * kGb);
  f.cluster.run_until(kNever);
  EXPECT_GT(f.cluster.gang_totals(a, 0).out_bytes, 8 * kGb);
  EXPECT_GT(f.cluster.gang_totals(b, 0).in_bytes, 8 * kGb);
  EXPECT_EQ(f.cluster.gang_totals(a, 0).worked, from_seconds(60));
  EXPECT_EQ(f.cluster.gang_totals(b, 0).worked, from_seconds(60));
}

TEST(VirtualCluster, MovingBothWaysAtOnceHalvesASwitch) {
  double waited[2];
  for (const bool at_once : {false, true}) {
    MoveModel moves;
    moves.out_bytes_per_s = moves.in_bytes_per_s = 1e9;
    moves.at_once = at_once;
    Fixture f(10 * kGb, moves);
    f.add(20, 80, 2, 10 * kGb);
    const int second = f.add(20, 80, 1, 10 * kGb, 60);  // long into the gap
    f.cluster.run_until(kNever);
    waited[at_once] = seconds(f.cluster.gang_totals(second, 0).waited);
  }
  EXPECT_NEAR(waited[0], 20, 1);
  EXPECT_NEAR(waited[1], 10, 1);
}

TEST(VirtualCluster, RecordsWhatANodeAgentWouldSee) {
  Fixture f(10 * kGb);
  int a = f.add(2, 3, 5, 0);
  f.add(2, 3, 5, 0);
  f.cluster.run_until(kNever);
  const auto& bursts = f.cluster.bursts(a, 0);
  ASSERT_EQ(bursts.size(), 5u);
  for (const Burst& burst : bursts) {
    EXPECT_EQ(burst.work, from_seconds(2));
    EXPECT_GE(burst.ended - burst.wanted, burst.work);
  }
}

TEST(VirtualCluster, RemovedJobFreesItsNode) {
  Fixture f(10 * kGb);
  int a = f.add(1000, 1, 5, 8 * kGb);
  f.cluster.run_until(from_seconds(10));
  f.cluster.remove_job(a);
  int b = f.add(2, 3, 1, 8 * kGb, 10);
  f.cluster.run_until(from_seconds(100));
  EXPECT_FALSE(f.cluster.job(a).finished);
  EXPECT_LT(seconds(f.cluster.job(b).finished_at), 13);
  EXPECT_NEAR(seconds(f.cluster.gang_totals(a, 0).worked), 10, 0.5);
}

TEST(VirtualCluster, SameSeedSameHistory) {
  auto run = [] {
    Fixture f(10 * kGb);
    f.add(2.5, 1.5, 30, 8 * kGb);
    f.add(1.5, 2.5, 30, 8 * kGb);
    f.add(0.5, 0.7, 30, 8 * kGb);
    f.cluster.run_until(kNever);
    return std::tuple(f.cluster.events(), f.cluster.now());
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace plexrl::clustermgr::placement
