#include "nodemgr/bpf/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexrl::observer {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Thread {
 public:
  Thread(pid_t id, const std::string& name) {
    times_.process = 100;
    times_.thread = id;
    times_.name = name;
    times_.runs = 1;
  }
  Thread& did(Kind kind, std::chrono::nanoseconds time, const std::string& what = "",
              std::uint32_t number = 0) {
    times_.did[{kind, what, number, 0}] += time;
    return *this;
  }
  Thread& never_ran() {
    times_.runs = 0;
    return *this;
  }
  Thread& woken_by(pid_t thread, std::chrono::nanoseconds time) {
    times_.woken_by[thread] = time;
    return *this;
  }
  operator ThreadTimes() const { return times_; }  // NOLINT(google-explicit-constructor)

 private:
  ThreadTimes times_;
};

std::string command_of(pid_t process) { return process == 77 ? "judge" : ""; }

std::vector<Cause> causes(const std::vector<ThreadTimes>& threads, pid_t ender = 0) {
  return blame(threads, 1s, ender, command_of);
}

TEST(Blame, OneThreadsTimeIsTheGaps) {
  EXPECT_THAT(causes({Thread(100, "python")
                          .did(Kind::kNetwork, 900ms, "10.0.0.3:8000")
                          .did(Kind::kCpu, 100ms)}),
              ElementsAre(Cause{Kind::kNetwork, "10.0.0.3:8000", 900ms},
                          Cause{Kind::kCpu, "python", 100ms}));
}

TEST(Blame, WhatWasSeenStandsForAllOfTheGap) {
  EXPECT_THAT(causes({Thread(100, "python").did(Kind::kSleep, 10ms)}),
              ElementsAre(Cause{Kind::kSleep, "", 1s}));
}

TEST(Blame, NothingSeenIsNoCause) {
  EXPECT_THAT(causes({}), IsEmpty());
  EXPECT_THAT(causes({Thread(100, "python")}), IsEmpty());
}

TEST(Blame, WhoEndsTheGapCountsAlone) {
  const std::vector<ThreadTimes> threads = {Thread(100, "python").did(Kind::kDisk, 1s, "data.bin"),
                                            Thread(101, "heartbeat").did(Kind::kSleep, 1s)};
  EXPECT_THAT(causes(threads, 100), ElementsAre(Cause{Kind::kDisk, "data.bin", 1s}));
  EXPECT_EQ(causes(threads).size(), 2u) << "not known: all count alike";
}

TEST(Blame, WorkersThatNobodyHadWorkForDoNotCount) {
  EXPECT_THAT(causes({Thread(100, "python").did(Kind::kSleep, 1s),
                      Thread(101, "pool").never_ran().did(Kind::kLock, 1s),
                      Thread(102, "pool").never_ran().did(Kind::kLock, 1s)}),
              ElementsAre(Cause{Kind::kSleep, "", 1s}));
}

TEST(Blame, WhereNobodyRanAllCount) {
  EXPECT_THAT(causes({Thread(100, "python").never_ran().did(Kind::kNetwork, 1s, "10.0.0.3:80")}),
              ElementsAre(Cause{Kind::kNetwork, "10.0.0.3:80", 1s}));
}

TEST(Blame, OurOwnThreadsAndTheDriversAreNobodys) {
  EXPECT_THAT(causes({Thread(100, "python").did(Kind::kSleep, 1s),
                      Thread(101, "plexrl-agent").did(Kind::kLock, 1s),
                      Thread(102, "cuda-EvtHandlr").did(Kind::kGpu, 1s)}),
              ElementsAre(Cause{Kind::kSleep, "", 1s}));
}

TEST(Blame, AWaitForALockIsPutDownToWhoEndedIt) {
  const std::vector<ThreadTimes> threads = {
      Thread(100, "python").did(Kind::kLock, 1s).woken_by(101, 1s),
      Thread(101, "client").did(Kind::kNetwork, 600ms, "10.0.0.3:80").did(Kind::kLock, 400ms)};
  EXPECT_THAT(causes(threads, 100), ElementsAre(Cause{Kind::kNetwork, "10.0.0.3:80", 1s}));
}

TEST(Blame, TheRestOfAWaitForALockStaysOne) {
  const std::vector<ThreadTimes> threads = {
      Thread(100, "python").did(Kind::kLock, 1s).woken_by(101, 250ms),
      Thread(101, "client").did(Kind::kSleep, 1s)};
  EXPECT_THAT(causes(threads, 100),
              ElementsAre(Cause{Kind::kLock, "", 750ms}, Cause{Kind::kSleep, "", 250ms}));
}

TEST(Blame, LocksInACircleStayLocks) {
  const std::vector<ThreadTimes> threads = {
      Thread(100, "a").did(Kind::kLock, 1s).woken_by(101, 1s),
      Thread(101, "b").did(Kind::kLock, 1s).woken_by(100, 1s)};
  EXPECT_THAT(causes(threads, 100), ElementsAre(Cause{Kind::kLock, "", 1s}));
}

TEST(Blame, APipeIsNamedByWhoIsAtItsOtherEnd) {
  EXPECT_THAT(causes({Thread(100, "python")
                          .did(Kind::kPipe, 700ms, "", 77)
                          .did(Kind::kPipe, 200ms, "sh")
                          .did(Kind::kOther, 100ms, "", 999)}),
              ElementsAre(Cause{Kind::kPipe, "judge", 700ms}, Cause{Kind::kPipe, "sh", 200ms},
                          Cause{Kind::kOther, "system call 999", 100ms}));
}

TEST(AddressText, IsAsPeopleWriteIt) {
  std::array<std::uint8_t, 16> address{};
  address = {10, 0, 0, 3};
  EXPECT_EQ(address_text(4, address, 8000), "10.0.0.3:8000");
  address = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_EQ(address_text(6, address, 443), "[2001:db8::1]:443");
  address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 3};
  EXPECT_EQ(address_text(6, address, 80), "10.0.0.3:80");
  EXPECT_EQ(address_text(0, address, 80), "");
}

}  // namespace
}  // namespace plexrl::observer
