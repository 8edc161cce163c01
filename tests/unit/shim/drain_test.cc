#include "shim/drain.h"

#include <gtest/gtest.h>

#include "shim/idle_watch.h"

namespace plexrl::shim {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

Activity::Look busy_look() {
  Activity::Look look;
  look.busy = 1;
  look.busy_stream = reinterpret_cast<CUstream>(0xabc0);
  return look;
}

Activity::Look finished_look() {
  Activity::Look look;
  look.finished = true;
  return look;
}

TEST(Drain, NothingOutstandingIsDrainedAtOnce) {
  Drain drain(0, 250 * kMs);
  EXPECT_EQ(drain.step(1, finished_look()), Drain::State::kDrained);
  EXPECT_EQ(drain.last_completion_ns(), 0u);
}

TEST(Drain, FailsAfterTheBudgetWithoutProgressAndNamesTheStream) {
  Drain drain(0, 250 * kMs);
  EXPECT_EQ(drain.step(1 * kMs, busy_look()), Drain::State::kPending);
  EXPECT_EQ(drain.step(249 * kMs, busy_look()), Drain::State::kPending);
  EXPECT_EQ(drain.step(250 * kMs, busy_look()), Drain::State::kFailed);
  EXPECT_EQ(drain.obstacle(), "stream 0xabc0 busy, 1 in all");
}

TEST(Drain, ProgressStartsTheBudgetAnew) {
  Drain drain(0, 250 * kMs);
  EXPECT_EQ(drain.step(1 * kMs, busy_look()), Drain::State::kPending);
  Activity::Look progress = busy_look();
  progress.progressed = true;
  EXPECT_EQ(drain.step(240 * kMs, progress), Drain::State::kPending);
  EXPECT_EQ(drain.step(480 * kMs, busy_look()), Drain::State::kPending);
  EXPECT_EQ(drain.step(490 * kMs, busy_look()), Drain::State::kFailed);
}

TEST(Drain, AThreadThatLeavesTheDriverIsProgress) {
  Drain drain(0, 250 * kMs);
  Activity::Look look;
  look.inside = 2;
  EXPECT_EQ(drain.step(1 * kMs, look), Drain::State::kPending);
  look.inside = 1;
  EXPECT_EQ(drain.step(200 * kMs, look), Drain::State::kPending);
  EXPECT_EQ(drain.step(400 * kMs, look), Drain::State::kPending);
  EXPECT_EQ(drain.step(450 * kMs, look), Drain::State::kFailed);
  EXPECT_EQ(drain.obstacle(), "1 threads inside the driver");
}

TEST(Drain, ACaptureEndsTheAttemptAtOnce) {
  Drain drain(0, 250 * kMs);
  Activity::Look look;
  look.capturing = true;
  EXPECT_EQ(drain.step(1, look), Drain::State::kFailed);
  EXPECT_EQ(drain.obstacle(), "capture in progress");
}

TEST(IdleWatch, IdleIsFinishedAndQuietForTheGraceTime) {
  IdleWatch watch(5 * kMs);
  EXPECT_FALSE(watch.step(10 * kMs, finished_look(), 7));
  EXPECT_FALSE(watch.step(14 * kMs, finished_look(), 7));
  EXPECT_EQ(watch.step(15 * kMs, finished_look(), 7), 10 * kMs);
}

TEST(IdleWatch, ASubmissionInBetweenStartsTheGraceTimeAnew) {
  IdleWatch watch(5 * kMs);
  EXPECT_FALSE(watch.step(10 * kMs, finished_look(), 7));
  EXPECT_FALSE(watch.step(15 * kMs, finished_look(), 8));
  EXPECT_EQ(watch.step(20 * kMs, finished_look(), 8), 15 * kMs);
}

TEST(IdleWatch, LooksLessOftenWhileSomethingRunsForLong) {
  IdleWatch watch(5 * kMs);
  watch.step(1 * kMs, busy_look(), 1);
  const std::uint64_t first = watch.pause_ns(1 * kMs);
  for (int i = 0; i < 10; ++i) watch.step((2 + i) * kMs, busy_look(), 1);
  EXPECT_GT(watch.pause_ns(12 * kMs), first);
  EXPECT_LE(watch.pause_ns(12 * kMs), 2 * kMs);
}

TEST(IdleWatch, SleepsUntilTheGraceTimeIsOver) {
  IdleWatch watch(5 * kMs);
  watch.step(10 * kMs, finished_look(), 0);
  watch.step(10 * kMs, finished_look(), 0);
  EXPECT_EQ(watch.pause_ns(12 * kMs), 3 * kMs);
}

}  // namespace
}  // namespace plexrl::shim
