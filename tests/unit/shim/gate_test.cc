#include "shim/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/shim/fake_driver.h"

namespace plexrl::shim {
namespace {

std::atomic<int> waits{0};
std::atomic<int> busy_edges{0};

bool count_wait() noexcept {
  ++waits;
  return true;
}
void count_busy() noexcept { ++busy_edges; }
bool pass() noexcept { return false; }

class GateTest : public ::testing::TestWithParam<bool> {
 protected:
  GateTest() : gate_({&count_wait, &count_busy}) {
    waits = 0;
    busy_edges = 0;
    gate_.prepare(GetParam());
  }
  testing::FakeDriver driver_;
  Gate gate_;
};

TEST_P(GateTest, ClosedGateHoldsACallUntilItOpens) {
  std::atomic<bool> passed{false};
  std::thread job([&] {
    gate_.enter(CU_STREAM_LEGACY);
    passed = true;
    gate_.leave();
  });
  while (gate_.waiters() == 0) std::this_thread::yield();
  EXPECT_FALSE(passed);
  gate_.open();
  job.join();
  EXPECT_TRUE(passed);
  EXPECT_EQ(Gate::threads_inside(), 0u);
}

TEST_P(GateTest, CallsInsideCallsPassAClosedGate) {
  gate_.open();
  gate_.enter(CU_STREAM_LEGACY);
  gate_.close();
  gate_.enter(CU_STREAM_LEGACY);
  gate_.leave();
  EXPECT_EQ(Gate::threads_inside(), 1u);
  gate_.leave();
  EXPECT_EQ(Gate::threads_inside(), 0u);
}

TEST_P(GateTest, ACallForWhichTheGateNeverOpensPasses) {
  gate_.set_hooks({&pass, &count_busy});
  gate_.enter(CU_STREAM_LEGACY);
  gate_.leave();
  EXPECT_FALSE(gate_.is_open());
}

TEST_P(GateTest, FirstCallThroughAnArmedGateOpensItAndSaysSo) {
  gate_.open();
  ASSERT_TRUE(gate_.arm());
  gate_.enter(CU_STREAM_LEGACY);
  gate_.leave();
  EXPECT_EQ(busy_edges, 1);
  EXPECT_FALSE(gate_.is_armed());
  gate_.enter(CU_STREAM_LEGACY);
  gate_.leave();
  EXPECT_EQ(busy_edges, 1);
}

TEST_P(GateTest, AClosedGateCantBeArmed) {
  EXPECT_FALSE(gate_.arm());
  gate_.open();
  gate_.close();
  EXPECT_FALSE(gate_.arm());
}

TEST_P(GateTest, TryEnterNeverWaits) {
  EXPECT_FALSE(gate_.try_enter_host());
  gate_.open();
  ASSERT_TRUE(gate_.try_enter_host());
  gate_.leave();
  ASSERT_TRUE(gate_.arm());
  ASSERT_TRUE(gate_.try_enter_host());
  gate_.leave();
  EXPECT_EQ(Gate::threads_inside(), 0u);
}

TEST_P(GateTest, CallsThatGiveBackPassButAreSeen) {
  gate_.enter_giving_back();
  EXPECT_EQ(Gate::threads_inside(), 1u);
  gate_.leave();
}

TEST_P(GateTest, AThreadThatEndsInsideACallLeavesIt) {
  gate_.open();
  std::thread([&] { gate_.enter(CU_STREAM_LEGACY); }).join();
  EXPECT_EQ(Gate::threads_inside(), 0u);
}

// The invariant itself: once the gate is closed and nobody is inside, nobody gets inside.
TEST_P(GateTest, NobodyIsInsideAfterADrainHoweverManyThreadsTry) {
  constexpr int kThreads = 6;
  constexpr int kRounds = 100;
  std::atomic<int> inside{0};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> passed{0};
  std::vector<std::thread> jobs;
  for (int i = 0; i < kThreads; ++i) {
    jobs.emplace_back([&] {
      while (!stop) {
        gate_.enter(CU_STREAM_LEGACY);
        inside.fetch_add(1, std::memory_order_relaxed);
        inside.fetch_sub(1, std::memory_order_relaxed);
        passed.fetch_add(1, std::memory_order_relaxed);
        gate_.leave();
      }
    });
  }
  int violations = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t before = passed;
    gate_.open();
    if (round % 3 == 0) gate_.arm();
    while (passed == before) std::this_thread::yield();
    gate_.close();
    while (Gate::threads_inside() != 0) std::this_thread::yield();
    const std::uint64_t at_rest = passed;
    for (int look = 0; look < 20; ++look) {
      if (inside != 0 || passed != at_rest) ++violations;
      std::this_thread::yield();
    }
  }
  stop = true;
  gate_.open();
  for (std::thread& job : jobs) job.join();
  EXPECT_EQ(violations, 0);
}

INSTANTIATE_TEST_SUITE_P(Barriers, GateTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Membarrier" : "Fence"; });

}  // namespace
}  // namespace plexrl::shim
