#include "clustermgr/placement/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace plexrl::clustermgr::placement {
namespace {

/// Jobs of these sizes share a bin of 100; every bin costs 1.
class Bins : public GroupCosts {
 public:
  explicit Bins(std::vector<int> sizes) : sizes_(std::move(sizes)) {}
  double cost(std::span<const int> members) override {
    int sum = 0;
    for (int member : members) sum += sizes_[static_cast<std::size_t>(member)];
    return sum <= 100 ? 1 : -1;
  }
  int jobs() const { return static_cast<int>(sizes_.size()); }

 private:
  std::vector<int> sizes_;
};

/// Every split, tried one by one.
double cheapest(int job, int jobs, std::vector<std::vector<int>>& groups, GroupCosts& costs) {
  if (job == jobs) {
    double sum = 0;
    for (const std::vector<int>& group : groups) {
      double cost = costs.cost(group);
      if (cost < 0) return 1e9;
      sum += cost;
    }
    return sum;
  }
  double best = 1e9;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].push_back(job);
    best = std::min(best, cheapest(job + 1, jobs, groups, costs));
    groups[g].pop_back();
  }
  groups.push_back({job});
  best = std::min(best, cheapest(job + 1, jobs, groups, costs));
  groups.pop_back();
  return best;
}

void expect_split(const Packing& packing, int jobs) {
  std::vector<int> seen;
  for (const std::vector<int>& group : packing.groups) {
    EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
    seen.insert(seen.end(), group.begin(), group.end());
  }
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(jobs));
  for (int job = 0; job < jobs; ++job) EXPECT_EQ(seen[static_cast<std::size_t>(job)], job);
}

TEST(PackExactly, IsAsCheapAsTheBestOfAllSplits) {
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{
           {60, 50, 50, 40, 30, 70, 20}, {34, 34, 34, 67, 66, 33, 32}, {100, 1, 99, 2, 98}}) {
    Bins bins(sizes);
    Packing packing = pack_exactly(bins.jobs(), 5, bins);
    std::vector<std::vector<int>> groups;
    EXPECT_EQ(packing.cost, cheapest(0, bins.jobs(), groups, bins));
    expect_split(packing, bins.jobs());
  }
}

TEST(PackExactly, NoGroupIsLargerThanAllowed) {
  Bins bins(std::vector<int>(9, 1));
  EXPECT_EQ(pack_exactly(9, 3, bins).cost, 3);
}

TEST(PackQuickly, FindsTheOptimumOfSmallInstances) {
  Bins bins({60, 50, 50, 40, 30, 70, 20, 80, 45, 55, 35, 65});
  Packing exact = pack_exactly(bins.jobs(), 5, bins);
  Packing quick = pack_quickly(bins.jobs(), 5, bins, 20'000);
  EXPECT_EQ(quick.cost, exact.cost);
  expect_split(quick, bins.jobs());
}

TEST(PackQuickly, StopsNearItsBudget) {
  std::vector<int> sizes;
  for (int i = 0; i < 60; ++i) sizes.push_back(20 + i % 37);
  Bins bins(sizes);
  Packing packing = pack_quickly(60, 5, bins, 100);
  // Insertion always ends; what comes after it does not begin.
  EXPECT_LT(packing.asked, 60u * 61u);
  expect_split(packing, 60);
}

}  // namespace
}  // namespace plexrl::clustermgr::placement
