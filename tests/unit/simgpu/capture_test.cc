#include <thread>

#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

class CaptureTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    ASSERT_EQ(CUDA_SUCCESS, cuEventCreate(&fork_, CU_EVENT_DISABLE_TIMING));
    ASSERT_EQ(CUDA_SUCCESS, cuEventCreate(&join_, CU_EVENT_DISABLE_TIMING));
  }
  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    ASSERT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(stream_, mode));
  }
  // Ends the capture of `stream_` and runs what it holds.
  void end_and_run() {
    CUgraph graph = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuStreamEndCapture(stream_, &graph));
    CUgraphExec exec = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiate(&exec, graph, 0));
    ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
    EXPECT_EQ(CUDA_SUCCESS, cuGraphExecDestroy(exec));
    EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(graph));
  }
  CUresult end_result() {
    CUgraph graph = nullptr;
    const CUresult result = cuStreamEndCapture(stream_, &graph);
    EXPECT_EQ(result == CUDA_SUCCESS, graph != nullptr);
    return result;
  }
  CUstreamCaptureStatus status(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamIsCapturing(stream, &status));
    return status;
  }

  CUstream other_ = nullptr;
  CUevent fork_ = nullptr;
  CUevent join_ = nullptr;
};

TEST_F(CaptureTest, WorkIsRecordedNotRun) {
  begin();
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 5, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32Async(words_, 6, 10, stream_));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(stream_));
  CUgraph graph = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(stream_));
  EXPECT_EQ(all(0), words());
  CUgraphExec exec = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiate(&exec, graph, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
  const std::vector<unsigned> now = words();
  EXPECT_EQ(6u, now[9]);
  EXPECT_EQ(5u, now[10]);
}

TEST_F(CaptureTest, ArgumentsAreThoseOfTheCapture) {
  begin();
  {
    unsigned count = kCount;
    unsigned value = 7;
    void* parameters[] = {&words_, &count, &value};
    ASSERT_EQ(CUDA_SUCCESS,
              cuLaunchKernel(fill_, 4, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr));
    count = value = 0;
  }
  end_and_run();
  EXPECT_EQ(all(7), words());
}

TEST_F(CaptureTest, AnEventForksIntoAnotherStreamAndJoins) {
  begin();
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 1, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(fork_, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(other_, fork_, 0));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(other_));
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 10, other_));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(join_, other_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(stream_, join_, 0));
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 100, stream_));
  end_and_run();
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(other_));
  EXPECT_EQ(all(111), words());
}

TEST_F(CaptureTest, AJoinedStreamMayBeDestroyedBeforeTheEnd) {
  begin();
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(fork_, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(other_, fork_, 0));
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 6, other_));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(join_, other_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(stream_, join_, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamDestroy(other_));
  end_and_run();
  EXPECT_EQ(all(6), words());
}

TEST_F(CaptureTest, ACaptureEndsWithItsStream) {
  begin();
  ASSERT_EQ(CUDA_SUCCESS, cuStreamDestroy(stream_));
  CUdeviceptr memory = 0;
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 4));
}

TEST_F(CaptureTest, AForkThatIsNotJoinedIsAnError) {
  begin();
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(fork_, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(other_, fork_, 0));
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 1, other_));
  CUgraph graph = nullptr;
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other_, &graph));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, end_result());
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(other_));
}

TEST_F(CaptureTest, WaitingInsideInvalidatesTheCapture) {
  begin();
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 1, stream_));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream_));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status(stream_));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, launch(fill_, 1, stream_));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result());
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 2, stream_));
  EXPECT_EQ(all(2), words());
}

TEST_F(CaptureTest, UnsafeCallsAreForbiddenByMode) {
  CUdeviceptr memory = 0;
  begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  std::thread([&] {
    ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&memory, 4));
  }).join();
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result());

  begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  std::thread([&] {
    ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 4));
  }).join();
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&memory, 4));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result());

  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 4));
  EXPECT_EQ(CUDA_SUCCESS, end_result());

  begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(CUDA_SUCCESS, cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
  EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 4));
  ASSERT_EQ(CUDA_SUCCESS, cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(CUDA_SUCCESS, end_result());
}

TEST_F(CaptureTest, ItEndsWhereItBegan) {
  begin();
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::thread([&] {
    ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, end_result());
  }).join();
  EXPECT_EQ(CUDA_SUCCESS, end_result());
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, end_result());
}

TEST_F(CaptureTest, TheLegacyStreamCantBeCaptured) {
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

TEST_F(CaptureTest, LegacyWorkWouldDependOnABlockingStreamInCapture) {
  CUstream blocking = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, launch(fill_, 1, nullptr));
  CUgraph graph = nullptr;
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
  begin();
  EXPECT_EQ(CUDA_SUCCESS, launch(fill_, 1, nullptr));
  EXPECT_EQ(CUDA_SUCCESS, end_result());
}

TEST_F(CaptureTest, EventsOfACaptureStayInside) {
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(join_, other_));
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(fork_, stream_));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream_, join_, 0));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result());
  EXPECT_EQ(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(other_, fork_, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(fork_, other_));
  EXPECT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(stream_, fork_, 0));
}

TEST_F(CaptureTest, AskingForAnEventInsideOrForTheWholeContextInvalidates) {
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(fork_, stream_));
  EXPECT_EQ(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(fork_));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result());
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result());
}

TEST_F(CaptureTest, TwoCapturesDontMerge) {
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(other_, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(fork_, other_));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(stream_, fork_, 0));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end_result());
  CUgraph graph = nullptr;
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(other_, &graph));
}

TEST_F(CaptureTest, AnExternalEventBecomesANode) {
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuEventRecordWithFlags(fork_, stream_, CU_EVENT_RECORD_EXTERNAL));
  begin();
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 3, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecordWithFlags(fork_, stream_, CU_EVENT_RECORD_EXTERNAL));
  end_and_run();
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(other_, fork_, 0));
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 1, other_));
  EXPECT_EQ(all(4), words());
}

TEST_F(CaptureTest, DependenciesCanBeReadAndReplaced) {
  begin();
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 3, stream_));
  CUstreamCaptureStatus state;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* tail = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(CUDA_SUCCESS,
            cuStreamGetCaptureInfo(stream_, &state, &id, &graph, &tail, nullptr, &count));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, state);
  EXPECT_NE(0u, id);
  ASSERT_EQ(1u, count);
  CUgraphNode first = tail[0];
  unsigned words_count = kCount;
  unsigned value = 40;
  void* parameters[] = {&words_, &words_count, &value};
  CUDA_KERNEL_NODE_PARAMS kernel{add_, 4, 1, 1, 32, 1, 1, 0, parameters, nullptr, nullptr, nullptr};
  CUgraphNode second = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddKernelNode(&second, graph, &first, 1, &kernel));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamUpdateCaptureDependencies(stream_, &second, nullptr, 1,
                                                            CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 1, stream_));
  end_and_run();
  EXPECT_EQ(all(44), words());
}

TEST_F(CaptureTest, CapturesIntoAGivenGraph) {
  CUgraph graph = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS fill{words_, 0, 50, 4, kCount, 1};
  CUgraphNode filled = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill, context_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamBeginCaptureToGraph(stream_, graph, &filled, nullptr, 1,
                                                      CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 5, stream_));
  CUgraph ended = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamEndCapture(stream_, &ended));
  EXPECT_EQ(graph, ended);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiate(&exec, graph, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
  EXPECT_EQ(all(55), words());
}

TEST_F(CaptureTest, StreamOrderedMemoryBecomesNodes) {
  begin();
  CUdeviceptr memory = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAllocAsync(&memory, kCount * 4, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32Async(memory, 9, kCount, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoDAsync(words_, memory, kCount * 4, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(memory, stream_));
  end_and_run();
  EXPECT_EQ(all(9), words());
}

TEST_F(CaptureTest, ALaunchedGraphIsCapturedAsAChild) {
  begin();
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 2, stream_));
  CUgraph inner = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamEndCapture(stream_, &inner));
  CUgraphExec exec = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiate(&exec, inner, 0));
  begin();
  ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 3, stream_));
  end_and_run();
  EXPECT_EQ(all(5), words());
}

}  // namespace
}  // namespace plexrl::simgpu
