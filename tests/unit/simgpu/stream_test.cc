#include <atomic>
#include <thread>

#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

/// Streams are held up by a word that the host sets, so that no test depends on how fast anything
/// is.
class StreamTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    void* host = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuMemHostAlloc(&host, 4096, 0));
    word_ = static_cast<unsigned*>(host);
    *word_ = 0;
    ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&blocking_, CU_STREAM_DEFAULT));
  }
  CUdeviceptr word() const { return reinterpret_cast<CUdeviceptr>(word_); }
  void hold(CUstream stream) {
    ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitValue32(stream, word(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void let_go() { __atomic_store_n(word_, 1u, __ATOMIC_RELEASE); }

  unsigned* word_ = nullptr;
  CUstream blocking_ = nullptr;
};

TEST_F(StreamTest, WorkIsAsynchronousAndInOrder) {
  hold(stream_);
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 4, stream_));
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 3, stream_));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream_));
  let_go();
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(CUDA_SUCCESS, cuStreamQuery(stream_));
  EXPECT_EQ(all(7), words());
}

TEST_F(StreamTest, TheLegacyStreamWaitsForBlockingStreamsOnly) {
  hold(stream_);  // a non-blocking one
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 1, nullptr));
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(nullptr)) << "passes a non-blocking stream";
  let_go();
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  *word_ = 0;
  hold(blocking_);
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 2, nullptr));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  let_go();
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
  EXPECT_EQ(CUDA_SUCCESS, cuStreamQuery(blocking_));
}

TEST_F(StreamTest, BlockingStreamsWaitForTheLegacyStream) {
  hold(CU_STREAM_LEGACY);
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 2, blocking_));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking_));
  let_go();
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(blocking_));
}

TEST_F(StreamTest, EachThreadHasADefaultStreamOfItsOwn) {
  hold(CU_STREAM_PER_THREAD);
  unsigned long long mine = 0, theirs = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
  CUresult other = CUDA_ERROR_UNKNOWN;
  std::thread thread([&] {
    cuCtxSetCurrent(context_);
    cuStreamGetId(CU_STREAM_PER_THREAD, &theirs);
    other = cuStreamSynchronize(CU_STREAM_PER_THREAD);
  });
  thread.join();
  EXPECT_EQ(CUDA_SUCCESS, other) << "the other thread's stream is not held up";
  EXPECT_NE(mine, theirs);
  let_go();
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

TEST_F(StreamTest, AnEventOrdersTwoStreams) {
  CUevent event = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuEventCreate(&event, CU_EVENT_DEFAULT));
  EXPECT_EQ(CUDA_SUCCESS, cuEventQuery(event)) << "never recorded";
  hold(stream_);
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 5, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(event, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(blocking_, event, 0));
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 1, blocking_));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  let_go();
  ASSERT_EQ(CUDA_SUCCESS, cuEventSynchronize(event));
  EXPECT_EQ(all(6), words());
  ASSERT_EQ(CUDA_SUCCESS, cuEventDestroy(event));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
}

TEST_F(StreamTest, TimeBetweenEventsIsAtLeastThatOfTheWork) {
  CUevent start = nullptr, end = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuEventCreate(&start, CU_EVENT_DEFAULT));
  ASSERT_EQ(CUDA_SUCCESS, cuEventCreate(&end, CU_EVENT_DEFAULT));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(start, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchHostFunc(
                              stream_, [](void*) { usleep(20'000); }, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(end, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuEventSynchronize(end));
  float milliseconds = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 19.0f);
  CUevent untimed = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, untimed));
  for (CUevent event : {start, end, untimed}) EXPECT_EQ(CUDA_SUCCESS, cuEventDestroy(event));
}

TEST_F(StreamTest, HostFunctionsRunInOrderOnAnotherThread) {
  struct Seen {
    std::thread::id thread;
    std::atomic<int> calls{0};
  } seen;
  hold(stream_);
  const auto note = [](void* data) {
    static_cast<Seen*>(data)->thread = std::this_thread::get_id();
    ++static_cast<Seen*>(data)->calls;
  };
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchHostFunc(stream_, note, &seen));
  EXPECT_EQ(0, seen.calls);
  let_go();
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(1, seen.calls);
  EXPECT_NE(std::this_thread::get_id(), seen.thread);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(stream_, nullptr, nullptr));
}

TEST_F(StreamTest, OneStreamWritesWhatAnotherWaitsFor) {
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitValue32(blocking_, words_, 9, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWriteValue32(blocking_, words_ + 4, 2, 0));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWriteValue32(stream_, words_, 9, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(blocking_));
  EXPECT_EQ(2u, words()[1]);
}

TEST_F(StreamTest, ADestroyedStreamFinishesItsWork) {
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 8, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamDestroy(stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream_));
  EXPECT_EQ(all(8), words());
}

TEST_F(StreamTest, ContextsAreAStackOfEachThread) {
  CUcontext second = nullptr, current = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuCtxCreate(&second, nullptr, 0, device_));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxPopCurrent(&current));
  EXPECT_EQ(second, current);
  ASSERT_EQ(CUDA_SUCCESS, cuCtxGetCurrent(&current));
  EXPECT_EQ(context_, current);
  std::thread([&] { EXPECT_EQ(CUDA_SUCCESS, cuCtxGetCurrent(&current)); }).join();
  EXPECT_EQ(nullptr, current) << "another thread has none";
  ASSERT_EQ(CUDA_SUCCESS, cuCtxDestroy(second));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(second));
}

}  // namespace
}  // namespace plexrl::simgpu
