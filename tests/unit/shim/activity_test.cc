#include "shim/activity.h"

#include <gtest/gtest.h>

#include <thread>

#include "shim/contexts.h"
#include "shim/gate.h"
#include "tests/unit/shim/fake_driver.h"

namespace plexrl::shim {
namespace {

bool pass() noexcept { return false; }
void nothing() noexcept {}

class ActivityTest : public ::testing::Test {
 protected:
  ActivityTest() : gate_({&pass, &nothing}) {
    gate_.prepare();
    gate_.open();
    context_ = driver_.make_context();
    driver_.set_current(context_);
    contexts().add(context_, 0);
  }
  ~ActivityTest() override {
    // Marks live as long as their threads' slots, across tests.
    const auto looks = activity().exclude_looks();
    for (CUstream stream : streams_) activity().stream_ends(stream);
    activity().context_ends(context_);
    contexts().remove(context_);
  }
  CUstream make_stream() {
    CUstream stream = nullptr;
    driver.cuStreamCreate(&stream, 0);
    const auto looks = activity().exclude_looks();
    activity().stream_created(stream, context_);
    streams_.push_back(stream);
    return stream;
  }
  void submit(CUstream stream) {
    gate_.enter(stream);
    gate_.leave();
  }
  void destroy(CUstream stream) {
    const auto looks = activity().exclude_looks();
    activity().stream_ends(stream);
    driver.cuStreamDestroy_v2(stream);
    std::erase(streams_, stream);
  }

  testing::FakeDriver driver_;
  Gate gate_;
  CUcontext context_;
  std::vector<CUstream> streams_;
};

TEST_F(ActivityTest, NothingSubmittedIsFinished) { EXPECT_TRUE(activity().look().finished); }

TEST_F(ActivityTest, AStreamIsOutstandingUntilItIsReady) {
  const CUstream stream = make_stream();
  driver_.set_busy(stream, true);
  submit(stream);
  const Activity::Look busy = activity().look();
  EXPECT_FALSE(busy.finished);
  EXPECT_EQ(busy.busy, 1u);
  EXPECT_EQ(busy.busy_stream, stream);
  driver_.set_busy(stream, false);
  const Activity::Look done = activity().look();
  EXPECT_TRUE(done.finished);
  EXPECT_TRUE(done.progressed);
}

TEST_F(ActivityTest, AFinishedStreamIsNotQueriedAgain) {
  submit(make_stream());
  EXPECT_TRUE(activity().look().finished);
  const int queries = driver_.calls("cuStreamQuery");
  EXPECT_TRUE(activity().look().finished);
  EXPECT_EQ(driver_.calls("cuStreamQuery"), queries);
}

TEST_F(ActivityTest, WhatRanWhenTheDriverClosedMayRunStill) {
  const CUstream stream = make_stream();
  for (const CUstream one : {stream, CUstream{CU_STREAM_LEGACY}}) {
    submit(one);
    for (const char* call : {"cuStreamQuery", "cuCtxPushCurrent_v2"}) {
      if (one == stream && call[2] == 'C') continue;  // it may be asked without its context
      driver_.fail_always(call, CUDA_ERROR_DEINITIALIZED);
      EXPECT_FALSE(activity().look().finished) << call;
      driver_.fail_always(call, CUDA_SUCCESS);
    }
    EXPECT_TRUE(activity().look().finished);
  }
}

TEST_F(ActivityTest, TheLegacyStreamIsAskedInEveryContext) {
  const CUcontext other = driver_.make_context();
  contexts().add(other, 0);
  submit(CU_STREAM_LEGACY);
  const int queries = driver_.calls("cuStreamQuery");
  EXPECT_TRUE(activity().look().finished);
  EXPECT_EQ(driver_.calls("cuStreamQuery"), queries + 2);
  contexts().remove(other);
}

TEST_F(ActivityTest, ManyMoreStreamsThanTheCacheHolds) {
  std::vector<CUstream> streams;
  for (int i = 0; i < 100; ++i) streams.push_back(make_stream());
  for (CUstream stream : streams) {
    driver_.set_busy(stream, true);
    submit(stream);
  }
  EXPECT_EQ(activity().look().busy, 100u);
  for (CUstream stream : streams) driver_.set_busy(stream, false);
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, ThePerThreadStreamIsToldByAnEventOfItsOwnThread) {
  driver_.set_busy(CU_STREAM_PER_THREAD, true);
  submit(CU_STREAM_PER_THREAD);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 1);
  EXPECT_FALSE(activity().look().finished);
  driver_.set_busy(CU_STREAM_PER_THREAD, false);
  EXPECT_TRUE(activity().look().finished);
  submit(CU_STREAM_PER_THREAD);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 2);
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, NoEventIsRecordedIntoACapture) {
  driver_.capturing.insert(CU_STREAM_PER_THREAD);
  submit(CU_STREAM_PER_THREAD);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 0);
  driver_.capturing.clear();
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, ACaptureIsActivityAndNothingIsQueriedMeanwhile) {
  const CUstream stream = make_stream();
  submit(stream);
  {
    const auto looks = activity().exclude_looks();
    activity().capture_began(stream);
  }
  const int queries = driver_.calls("cuStreamQuery");
  const Activity::Look look = activity().look();
  EXPECT_TRUE(look.capturing);
  EXPECT_FALSE(look.finished);
  EXPECT_EQ(driver_.calls("cuStreamQuery"), queries);
  {
    const auto looks = activity().exclude_looks();
    activity().capture_ended(stream);
  }
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, WorkOfADestroyedStreamIsStillSeen) {
  const CUstream stream = make_stream();
  driver_.set_busy(stream, true);
  submit(stream);
  destroy(stream);
  EXPECT_FALSE(activity().look().finished);
  driver_.set_busy(stream, false);
  EXPECT_TRUE(activity().look().finished);
  EXPECT_EQ(driver_.calls("cuEventDestroy_v2"), 1);
}

TEST_F(ActivityTest, ADestroyedStreamIsNeverQueried) {
  const CUstream stream = make_stream();
  submit(stream);
  destroy(stream);  // the fake driver aborts when asked about it
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, AHandleThatComesAgainIsANewStream) {
  const CUstream stream = make_stream();
  submit(stream);
  destroy(stream);
  driver_.streams.insert(stream);
  streams_.push_back(stream);
  driver_.set_busy(stream, true);
  submit(stream);
  EXPECT_FALSE(activity().look().finished);
  driver_.set_busy(stream, false);
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, AContextTakesItsStreamsWithIt) {
  const CUstream stream = make_stream();
  driver_.set_busy(stream, true);
  submit(stream);
  {
    const auto looks = activity().exclude_looks();
    activity().context_ends(context_);
    driver_.streams.erase(stream);
    streams_.clear();
  }
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, AThreadInsideTheDriverIsOutstanding) {
  gate_.enter(CU_STREAM_LEGACY);
  const Activity::Look look = activity().look();
  EXPECT_EQ(look.inside, 1u);
  EXPECT_FALSE(look.finished);
  gate_.leave();
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, WorkOfAThreadThatHasEndedIsStillSeen) {
  const CUstream stream = make_stream();
  driver_.set_busy(stream, true);
  std::thread([&] { submit(stream); }).join();
  EXPECT_FALSE(activity().look().finished);
  driver_.set_busy(stream, false);
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, ACallOnAllStreamsAsksThemAll) {
  const CUstream stream = make_stream();
  driver_.set_busy(stream, true);
  submit(reinterpret_cast<CUstream>(~std::uintptr_t{0}));
  EXPECT_FALSE(activity().look().finished);
  driver_.set_busy(stream, false);
  EXPECT_TRUE(activity().look().finished);
}

TEST_F(ActivityTest, AFailedContextRunsNothingAnyMore) {
  const CUstream stream = make_stream();
  submit(stream);
  driver_.fail_always("cuStreamQuery", CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_TRUE(activity().look().finished);
}

}  // namespace
}  // namespace plexrl::shim
