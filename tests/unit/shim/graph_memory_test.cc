#include <gtest/gtest.h>

#include <functional>

#include "interpose/handlers.h"
#include "shim/process.h"
#include "tests/unit/shim/process_fixture.h"

/// Graphs with allocation nodes: what they take is charged before they run, waits for room like
/// other memory of the driver's, and a call that fails leaves nothing charged.
namespace plexrl::shim {
namespace {

using testing::kMiB;
using testing::ProcessTest;

class GraphMemoryTest : public ProcessTest {
 protected:
  void SetUp() override {
    manager_.promised = 40 * kMiB;
    ProcessTest::SetUp();
  }
  CUgraphExec instantiate(std::vector<std::size_t> allocations, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    const CUgraph graph = driver_.make_graph(std::move(allocations));
    EXPECT_EQ(shim::cuGraphInstantiateWithFlags(&exec, graph, flags), CUDA_SUCCESS);
    return exec;
  }
  static constexpr auto kFreesItself = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  static CUresult launch(CUgraphExec exec) { return shim::cuGraphLaunch(exec, CU_STREAM_LEGACY); }
  /// What is charged for graphs, with what was given back until now.
  std::uint64_t charged() {
    EXPECT_TRUE(process_.devices.figures(0));  // the manager answers when it has heard of that
    return manager_.unpageable();
  }
  std::uint64_t shown() const {
    std::uint64_t kinds[wire::kMemoryKinds] = {};
    process_.unpageable.sums(0, kinds);
    return kinds[static_cast<int>(wire::MemoryKind::kGraph)];
  }
};

TEST_F(GraphMemoryTest, ItIsChargedBeforeTheLaunchAndCountedAfterIt) {
  hold_lease();
  const CUgraphExec exec = instantiate({3 * kMiB, 6 * kMiB});
  EXPECT_EQ(charged(), 0u) << "nothing has run";
  ASSERT_EQ(launch(exec), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 10 * kMiB) << "in pages of 2 MiB";
  ASSERT_EQ(launch(exec), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 10 * kMiB) << "it has its memory";
  process_.graph_memory.count();
  EXPECT_EQ(charged(), 9 * kMiB) << "as the driver has it";
  EXPECT_EQ(shown(), 9 * kMiB);
  ASSERT_EQ(launch(exec), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 10 * kMiB) << "it runs in what the driver kept";
  EXPECT_EQ(shim::cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 0u);
  EXPECT_EQ(shown(), 0u);
  EXPECT_EQ(shim::cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(GraphMemoryTest, BeyondThePromiseALaunchIsOutOfMemoryAndTheDriverIsNotAsked) {
  hold_lease();
  allocate(16 * kMiB);
  const CUgraphExec fits = instantiate({20 * kMiB}), large = instantiate({26 * kMiB});
  EXPECT_EQ(launch(large), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(shim::cuGraphUpload(large, CU_STREAM_LEGACY), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_.calls("cuGraphLaunch"), 0);
  EXPECT_EQ(driver_.calls("cuGraphUpload"), 0);
  EXPECT_EQ(charged(), 0u);
  EXPECT_EQ(launch(fits), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 20 * kMiB);
}

TEST_F(GraphMemoryTest, WhatOthersHadIsTakenOverWhenTheirWorkIsOver) {
  hold_lease();
  const CUgraphExec first = instantiate({24 * kMiB}), second = instantiate({24 * kMiB});
  ASSERT_EQ(launch(first), CUDA_SUCCESS);
  EXPECT_EQ(launch(second), CUDA_SUCCESS) << "the driver has the first one's memory left over";
  EXPECT_EQ(charged(), 24 * kMiB);
}

TEST_F(GraphMemoryTest, WhatAGraphLeftBehindAndFreesAtItsNextLaunchIsChargedOnce) {
  hold_lease();
  const CUgraphExec exec = instantiate({24 * kMiB}, kFreesItself);
  for (int launched = 0; launched < 3; ++launched) {
    ASSERT_EQ(launch(exec), CUDA_SUCCESS);
    EXPECT_EQ(charged(), 24 * kMiB);
    process_.graph_memory.count();
    EXPECT_EQ(charged(), 24 * kMiB);
  }
}

TEST_F(GraphMemoryTest, WhatAGraphLeftBehindIsNoOthers) {
  hold_lease();
  const CUgraphExec first = instantiate({16 * kMiB}, kFreesItself);
  const CUgraphExec second = instantiate({12 * kMiB}, kFreesItself);
  ASSERT_EQ(launch(first), CUDA_SUCCESS);
  process_.graph_memory.count();
  ASSERT_EQ(shim::cuGraphUpload(second, CU_STREAM_LEGACY), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 28 * kMiB) << "it has not run, so nothing of it is there";
  process_.graph_memory.count();
  ASSERT_EQ(launch(second), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 28 * kMiB);
  process_.graph_memory.count();
  const CUgraphExec third = instantiate({16 * kMiB}, kFreesItself);
  EXPECT_EQ(launch(third), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(charged(), 28 * kMiB);
  EXPECT_EQ(launch(first), CUDA_SUCCESS);
  EXPECT_EQ(launch(second), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 28 * kMiB);
}

TEST_F(GraphMemoryTest, AGraphThatFreesItselfAndCouldNotBeLaunchedHasNothingTaken) {
  hold_lease();
  const CUgraphExec exec = instantiate({24 * kMiB}, kFreesItself);
  ASSERT_EQ(launch(exec), CUDA_SUCCESS);
  process_.graph_memory.count();
  driver_.fail("cuGraphLaunch", 1, CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(launch(exec), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(charged(), 24 * kMiB);
  EXPECT_EQ(launch(exec), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 24 * kMiB);
}

TEST_F(GraphMemoryTest, GraphsWithoutAllocationsAskNobody) {
  driver_.set_busy(CU_STREAM_LEGACY, true);  // so that the agent finds no rest, in which it counts
  hold_lease();
  const int asked = driver_.calls("cuDeviceGetGraphMemAttribute");
  const CUgraphExec exec = instantiate({});
  ASSERT_EQ(launch(exec), CUDA_SUCCESS);
  EXPECT_EQ(charged(), 0u);
  EXPECT_EQ(driver_.calls("cuDeviceGetGraphMemAttribute"), asked);
  driver_.set_busy(CU_STREAM_LEGACY, false);
}

/// A driver's call that makes a graph ready or runs it.
struct Step {
  const char* call;
  std::function<CUresult(CUgraphExec*, CUgraph)> make;
};

class FailingGraphStep : public GraphMemoryTest, public ::testing::WithParamInterface<Step> {
 protected:
  /// The call, with what has to come before it.
  CUresult run() { return GetParam().make(&exec_, graph_); }
  void SetUp() override {
    GraphMemoryTest::SetUp();
    hold_lease();
    graph_ = driver_.make_graph({8 * kMiB});
    EXPECT_EQ(shim::cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
  }
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

TEST_P(FailingGraphStep, WithoutRoomTheJobWaitsWhileOthersLeave) {
  driver_.fail_always(GetParam().call, CUDA_ERROR_OUT_OF_MEMORY);
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread job([&] {
    driver_.set_current(context_);
    result = run();
  });
  manager_.wait_for(wire::Type::kWantLease);  // holds it, and lacks memory
  driver_.fail_always(GetParam().call, CUDA_SUCCESS);
  job.join();
  EXPECT_EQ(result, CUDA_SUCCESS);
}

TEST_P(FailingGraphStep, AnErrorReachesTheJobUnchangedAndLeavesNothing) {
  driver_.fail(GetParam().call, 1, CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(run(), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(charged(), 0u);
  EXPECT_EQ(shown(), 0u);
  EXPECT_EQ(driver_.used_bytes(), ranges().totals(0).resident);
  EXPECT_EQ(run(), CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(
    Steps, FailingGraphStep,
    ::testing::Values(Step{"cuGraphInstantiateWithFlags",
                           [](CUgraphExec* exec, CUgraph graph) {
                             return shim::cuGraphInstantiateWithFlags(exec, graph, 0);
                           }},
                      Step{"cuGraphUpload",
                           [](CUgraphExec* exec, CUgraph) {
                             return shim::cuGraphUpload(*exec, CU_STREAM_LEGACY);
                           }},
                      Step{"cuGraphLaunch",
                           [](CUgraphExec* exec, CUgraph) {
                             return shim::cuGraphLaunch(*exec, CU_STREAM_LEGACY);
                           }}),
    [](const auto& step) { return std::string(step.param.call); });

}  // namespace
}  // namespace plexrl::shim
