#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "nodemgr/policy/order.h"
#include "tests/unit/nodemgr/policy_world.h"

namespace plexrl::nodemgr::policy::test {
namespace {

constexpr std::int64_t kGpuBytes = 1'000'000;

Habit random_habit(std::mt19937_64& rng, int gpus) {
  auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(rng() % n); };
  Habit habit;
  habit.gpus = 0;
  while (habit.gpus == 0) habit.gpus = rng() & ((GpuMask{1} << gpus) - 1);
  habit.priority = static_cast<int>(below(101));
  habit.bytes = below(kGpuBytes * 9 / 10);
  habit.burst = 1ms + Duration(below(3'000'000'000));
  habit.gap = Duration(below(2'000'000'000));
  habit.refuses_to_drain = below(4) == 0 ? 0.5 : 0;
  return habit;
}

Config quick_config() {
  Config config;
  config.max_wait = 20s;
  config.min_quantum = 50ms;
  return config;
}

class PolicyProperty : public ::testing::TestWithParam<int> {};

TEST_P(PolicyProperty, RandomGangsKeepTheInvariants) {
  std::mt19937_64 rng(static_cast<std::uint64_t>(GetParam()));
  int gpus = 1 + static_cast<int>(rng() % 4);
  std::map<int, std::int64_t> sizes;
  for (int gpu = 0; gpu < gpus; ++gpu) sizes[gpu] = kGpuBytes;
  World world(quick_config(), sizes, rng());
  int gangs = 2 + static_cast<int>(rng() % 5);
  for (int i = 0; i < gangs; ++i) {
    world.add(random_habit(rng, gpus), Duration(static_cast<std::int64_t>(rng() % 1'000'000'000)));
  }
  world.run_until(300s);
  EXPECT_THAT(world.breaches(), ::testing::IsEmpty());
}

TEST_P(PolicyProperty, NobodyStarvesAndTheBoundIsKept) {
  std::mt19937_64 rng(static_cast<std::uint64_t>(GetParam()) + 1000);
  int gpus = 1 + static_cast<int>(rng() % 4);
  std::map<int, std::int64_t> sizes;
  for (int gpu = 0; gpu < gpus; ++gpu) sizes[gpu] = kGpuBytes;
  Config config = quick_config();
  World world(config, sizes, rng());
  std::vector<GangId> ids;
  for (int i = 0; i < 5; ++i) {
    Habit habit = random_habit(rng, gpus);
    habit.refuses_to_drain = 0;
    ids.push_back(world.add(habit, 0s));
  }
  world.run_until(600s);
  for (GangId id : ids) {
    EXPECT_LE(world.longest_wait().at(id), config.max_wait);
    EXPECT_GE(world.grants().at(id) + world.bursts()[id], 10);
    const Gang* gang = world.state().find(id);
    if (gang->phase == Phase::kWaiting) {
      EXPECT_LE(world.now() - gang->want_since, config.max_wait);
    }
  }
}

TEST_P(PolicyProperty, AHolderThatRarelyDrainsIsRetriedUntilItDoes) {
  World world(quick_config(), {{0, kGpuBytes}}, static_cast<std::uint64_t>(GetParam()));
  Habit stubborn{.bytes = 600'000, .burst = 1000s, .refuses_to_drain = 0.7};
  Habit patient{.bytes = 600'000, .burst = 10ms, .gap = 50ms};
  world.add(stubborn, 0s);
  GangId other = world.add(patient, 1ms);
  world.run_until(300s);
  EXPECT_THAT(world.breaches(), ::testing::IsEmpty());
  EXPECT_GE(world.grants().at(other), 5);
}

TEST_P(PolicyProperty, TeamsGetTheirWeightedShares) {
  std::mt19937_64 rng(static_cast<std::uint64_t>(GetParam()) + 2000);
  World world(quick_config(), {{0, kGpuBytes}}, rng());
  const double weight = 1 + static_cast<double>(rng() % 4);
  world.weigh("heavy", weight);
  // Always busy, with bursts that end nowhere near a quantum; the light team has two jobs.
  Habit habit{.bytes = kGpuBytes / 4, .burst = 1000s, .job = "a", .team = "heavy"};
  const GangId heavy = world.add(habit, 0s);
  habit.team = "light";
  habit.job = "b";
  const GangId first = world.add(habit, 0s);
  habit.job = "c";
  const GangId second = world.add(habit, Duration(static_cast<std::int64_t>(rng() % 5'000'000)));
  world.run_until(300s);
  const double all = 300e9;
  EXPECT_NEAR(world.served(heavy).count() / all, weight / (weight + 1), 0.02);
  EXPECT_NEAR(world.served(first).count() / all, 0.5 / (weight + 1), 0.02);
  EXPECT_NEAR(world.served(second).count() / all, 0.5 / (weight + 1), 0.02);
}

TEST_P(PolicyProperty, SwitchingKeepsToItsShareWhenEverybodyAlwaysWants) {
  std::mt19937_64 rng(static_cast<std::uint64_t>(GetParam()) + 3000);
  // Moving takes 1 ns a byte: 300 to 600 ms for what a newcomer lacks.
  World world(Config{}, {{0, 1'000'000'000}}, rng());
  std::vector<GangId> ids;
  for (int i = 0; i < 3; ++i) {
    Habit habit{.burst = 1000s, .job = std::to_string(i)};
    habit.bytes = 650'000'000 + static_cast<std::int64_t>(rng() % 300'000'000);
    ids.push_back(world.add(habit, 0s));
  }
  auto served = [&] {
    Duration sum{0};
    for (GangId id : ids) sum += world.served(id);
    return sum;
  };
  world.run_until(100s);  // by then it has seen what a switch costs
  const Duration before = served();
  world.run_until(1100s);
  EXPECT_GE((served() - before).count() / 1000e9, 0.95);
  for (GangId id : ids) EXPECT_GE(world.grants().at(id), 10);
  EXPECT_THAT(world.breaches(), ::testing::IsEmpty());
}

TEST_P(PolicyProperty, AnOwnersBoundIsHeld) {
  std::mt19937_64 rng(static_cast<std::uint64_t>(GetParam()) + 4000);
  World world(Config{}, {{0, 100'000'000}}, rng());
  auto below = [&](std::int64_t n) { return Duration(static_cast<std::int64_t>(rng() % n)); };
  Habit bound{.bytes = 70'000'000, .burst = 200ms + below(400'000'000), .job = "bound"};
  bound.gap = 100ms + below(2'000'000'000);
  bound.max_slowdown = 1.05;
  const GangId id = world.add(bound, 0s);
  Habit other{.bytes = 70'000'000, .burst = 100ms + below(3'000'000'000), .job = "other"};
  world.add(other, 0s);
  world.run_until(400s);
  // A switch that is under way when the allowance runs out is borne out.
  EXPECT_LE(slowdown(*world.state().find(id), world.now()), 1.06);
  EXPECT_THAT(world.breaches(), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, PolicyProperty, ::testing::Range(1, 25));

}  // namespace
}  // namespace plexrl::nodemgr::policy::test
