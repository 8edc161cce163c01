#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/nodemgr/spanning_world.h"

namespace plexrl::nodemgr::spanning::test {
namespace {

using ::testing::IsEmpty;

GpuMask random_gpus(std::mt19937_64& rng, int gpus) {
  GpuMask mask = 0;
  while (mask == 0) mask = rng() & ((GpuMask{1} << gpus) - 1);
  return mask;
}

/// Random jobs over random nodes, with gangs of one node beside them.
struct Mix {
  std::vector<std::string> jobs;
  int locals = 0;
};

Mix add_random(World& world, std::mt19937_64& rng, int nodes, int gpus) {
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(rng() % n); };
  Mix mix;
  const int jobs = 2 + static_cast<int>(below(4));
  for (int i = 0; i < jobs; ++i) {
    SpanningHabit habit;
    while (habit.parts.size() < 2) {
      habit.parts.clear();
      for (int node = 0; node < nodes; ++node) {
        if (below(2) == 0) habit.parts[node] = random_gpus(rng, gpus);
      }
    }
    habit.rounds = 3 + static_cast<int>(below(8));
    habit.work = 1ms + Duration(below(2'000'000'000));
    habit.gap = 300ms + Duration(below(3'000'000'000));  // it can be cut
    habit.refuses = below(2) == 0 ? 0.3 : 0;
    habit.starts = Duration(below(10'000'000'000));
    habit.bytes = below(900'000);
    mix.jobs.push_back("job" + std::to_string(i));
    world.add(mix.jobs.back(), habit);
  }
  for (int node = 0; node < nodes; ++node) {
    if (below(3) == 0) continue;
    world.add(LocalHabit{node, random_gpus(rng, gpus), 1ms + Duration(below(1'000'000'000)),
                         Duration(below(1'000'000'000)), below(900'000)});
    ++mix.locals;
  }
  return mix;
}

class Spanning : public ::testing::TestWithParam<int> {
 protected:
  std::mt19937_64 rng_{static_cast<std::uint64_t>(GetParam())};
  int nodes_ = 2 + static_cast<int>(rng_() % 3);
  int gpus_ = 1 + static_cast<int>(rng_() % 3);

  void expect_all_end(World& world, const Mix& mix, Instant end) {
    std::vector<int> before;
    for (int i = 0; i < mix.locals; ++i) before.push_back(world.bursts(i));
    world.run_until(end);
    EXPECT_THAT(world.breaches(), IsEmpty());
    for (const std::string& job : mix.jobs) {
      EXPECT_TRUE(world.has_finished(job)) << job << " has done " << world.rounds(job) << " rounds";
    }
    for (int i = 0; i < mix.locals; ++i) {
      EXPECT_GT(world.bursts(i), before[static_cast<std::size_t>(i)]) << "local gang " << i;
    }
    EXPECT_EQ(world.records(), 0U) << "something is kept of jobs that have ended";
  }
};

TEST_P(Spanning, CrossedJobsAllEndWhereNothingGoesWrong) {
  World world(nodes_, gpus_, Trouble{}, rng_());
  const Mix mix = add_random(world, rng_, nodes_, gpus_);
  expect_all_end(world, mix, 900s);
}

TEST_P(Spanning, MessagesThatAreLostLateAndRepeatedDoNoHarm) {
  World world(nodes_, gpus_, Trouble{.until = 120s, .lost = 0.2, .repeated = 0.2, .delay = 500ms},
              rng_());
  const Mix mix = add_random(world, rng_, nodes_, gpus_);
  world.run_until(120s);
  expect_all_end(world, mix, 1000s);
}

TEST_P(Spanning, DeathsOfTheCoordinatorDoNoHarm) {
  World world(nodes_, gpus_,
              Trouble{.until = 120s,
                      .lost = 0.05,
                      .delay = 50ms,
                      .coordinator_dies = 5s,
                      .coordinator_away = GetParam() % 2 == 0 ? 2s : 25s,
                      .dies_at_store = 0.2},
              rng_());
  const Mix mix = add_random(world, rng_, nodes_, gpus_);
  world.run_until(120s);
  expect_all_end(world, mix, 1000s);
}

TEST_P(Spanning, DeathsOfNodeManagersDoNoHarm) {
  World world(nodes_, gpus_,
              Trouble{.until = 120s,
                      .delay = 50ms,
                      .node_dies = 10s,
                      .node_away = GetParam() % 2 == 0 ? 2s : 45s},
              rng_());
  const Mix mix = add_random(world, rng_, nodes_, gpus_);
  world.run_until(120s);
  expect_all_end(world, mix, 1000s);
}

TEST_P(Spanning, EverythingAtOnceDoesNoHarm) {
  World world(nodes_, gpus_,
              Trouble{.until = 200s,
                      .lost = 0.1,
                      .repeated = 0.1,
                      .delay = 2s,
                      .coordinator_dies = 10s,
                      .coordinator_away = 20s,
                      .dies_at_store = 0.1,
                      .node_dies = 20s,
                      .node_away = 40s},
              rng_());
  Mix mix = add_random(world, rng_, nodes_, gpus_);
  world.run_until(60s);
  world.kill_job(mix.jobs.front());
  mix.jobs.erase(mix.jobs.begin());
  world.run_until(200s);
  expect_all_end(world, mix, 1500s);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Spanning, ::testing::Range(0, 25));

/// Two jobs over the same two nodes, one GPU each.
class TwoJobs : public ::testing::Test {
 protected:
  void add(World& world, Duration work = 300ms, Duration gap = 300ms) {
    for (const char* job : {"a", "b"}) {
      world.add(job,
                SpanningHabit{.parts = {{0, 1}, {1, 1}}, .rounds = 40, .work = work, .gap = gap});
    }
  }
};

TEST_F(TwoJobs, TakeTurnsAndRunOnBothNodesOrNone) {
  World world(2, 1, Trouble{}, 1);
  add(world);
  // Part of a job runs alone only as long as a message is on its way, or a part tries to drain.
  std::map<std::string, Instant> together;
  Duration alone{0};
  world.watch = [&] {
    for (const char* job : {"a", "b"}) {
      // At its end its processes go one after the other.
      const bool ends = world.has_finished(job);
      if (ends || world.runs(job, 0) == world.runs(job, 1)) together[job] = world.now();
      alone = std::max(alone, world.now() - together[job]);
    }
  };
  world.run_until(120s);
  EXPECT_THAT(world.breaches(), IsEmpty());
  EXPECT_TRUE(world.has_finished("a"));
  EXPECT_TRUE(world.has_finished("b"));
  EXPECT_GT(world.slots(), 4U);
  EXPECT_LE(alone, 1s);
}

TEST_F(TwoJobs, AStartedSlotGoesOnWithoutTheCoordinatorAndTheOtherWaits) {
  World world(2, 1, Trouble{}, 2);
  add(world, 1s);
  while (!(world.runs("a", 0) && world.runs("a", 1)) && world.now() < 30s) {
    world.run_until(world.now() + 10ms);
  }
  ASSERT_TRUE(world.runs("a", 0));
  world.kill_coordinator(1000s);
  const int before = world.rounds("b");
  world.run_until(world.now() + 60s);
  EXPECT_TRUE(world.has_finished("a"));
  EXPECT_EQ(world.rounds("b"), before);
  world.run_until(1100s);
  EXPECT_TRUE(world.has_finished("b"));
  EXPECT_THAT(world.breaches(), IsEmpty());
}

TEST_F(TwoJobs, GangsOfOneNodeGoOnWithoutTheCoordinator) {
  World world(2, 1, Trouble{}, 3);
  add(world);
  world.add(LocalHabit{.node = 0, .gpus = 1, .burst = 100ms, .gap = 100ms});
  world.run_until(10s);
  world.kill_coordinator(300s);
  world.run_until(30s);
  const int bursts = world.bursts(0);
  world.run_until(130s);
  EXPECT_GT(world.bursts(0), bursts + 100);
  world.run_until(600s);
  EXPECT_TRUE(world.has_finished("a"));
  EXPECT_TRUE(world.has_finished("b"));
  EXPECT_THAT(world.breaches(), IsEmpty());
}

PartState holder_of(int) {
  PartState state;
  state.exists = true;
  state.gpus = 1;
  return state;
}

TEST(SpanningPart, KeepsGpusForAVoteNoLongerThanItsBound) {
  Part part("job", 2, PartConfig{.take_bound = 3s}, 0s);
  part.hear({"job", 1, Verb::kTake, 0, ""}, 1s);
  const PartState state = holder_of(1);
  part.look(state, 2s);
  EXPECT_EQ(part.standing(2s), policy::Standing::kTaken);
  EXPECT_EQ(part.wake_at(2s), 4s);
  part.look(state, 4s);
  EXPECT_EQ(part.standing(4s), policy::Standing::kCalled);
  EXPECT_TRUE(part.report(state).failed);
}

TEST(SpanningPart, IsBoundByItsVoteAndLendsGpusWhileNobodyTellsTheOutcome) {
  Part part("job", 2, PartConfig{.take_bound = 3s, .away_after = 10s}, 0s);
  part.hear({"job", 1, Verb::kTake, 0, ""}, 1s);
  PartState state = holder_of(1);
  state.kept = true;
  part.look(state, 2s);
  EXPECT_TRUE(part.report(state).done);
  EXPECT_EQ(part.standing(9s), policy::Standing::kTaken);
  EXPECT_EQ(part.standing(11s), policy::Standing::kCalled);
  state.kept = false;
  part.look(state, 12s);
  EXPECT_TRUE(part.report(state).done);
  part.hear({"job", 1, Verb::kCommit, 0, ""}, 13s);
  EXPECT_EQ(part.standing(13s), policy::Standing::kLeased);
}

TEST(SpanningPart, DropsOrdersThatAreLateOrForAnotherStart) {
  NodeParts parts("n", 7, PartConfig{});
  parts.add("job", 2, 0s);
  const auto orders = [](std::uint64_t generation, std::uint64_t number, std::uint64_t boot) {
    return NodeOrders{generation, number, boot, {{"job", number, Verb::kCall, 0, ""}}};
  };
  EXPECT_TRUE(parts.hear(orders(2, 5, 7), 1s));
  EXPECT_FALSE(parts.hear(orders(2, 4, 7), 1s));
  EXPECT_FALSE(parts.hear(orders(1, 9, 7), 1s));
  EXPECT_FALSE(parts.hear(orders(3, 9, 8), 1s));
  EXPECT_EQ(parts.find("job")->order().slot, 5U);
}

}  // namespace
}  // namespace plexrl::nodemgr::spanning::test
