#include "tools/checkpoint/gang.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "nodemgr/process_identity.h"

namespace plexrl::checkpoint {
namespace {

/// A driver that keeps the states of processes, and whose call number `fails_at` answers an error.
struct FakeDriver {
  std::map<int, CUprocessState> states;
  std::vector<std::string> calls;
  std::size_t fails_at = 0;

  CUresult move(int pid, const char* call, CUprocessState from, CUprocessState to) {
    calls.push_back(call + std::string(" ") + std::to_string(pid));
    if (calls.size() == fails_at) return CUDA_ERROR_NOT_SUPPORTED;
    if (states[pid] != from) return CUDA_ERROR_ILLEGAL_STATE;
    states[pid] = to;
    return CUDA_SUCCESS;
  }
};
FakeDriver* fake = nullptr;

constexpr auto kRunning = CU_PROCESS_STATE_RUNNING;
constexpr auto kLocked = CU_PROCESS_STATE_LOCKED;
constexpr auto kCheckpointed = CU_PROCESS_STATE_CHECKPOINTED;

/// This process and its parent: living ones.
class GangTest : public ::testing::Test {
 protected:
  GangTest() {
    fake = &driver_;
    for (const pid_t pid : {one_, two_}) {
      driver_.states[pid] = kRunning;
      targets_.push_back({pid, nodemgr::start_time_of(pid).value()});
    }
    library_.error_name = [](CUresult, const char** name) {
      *name = "SOME_ERROR";
      return CUDA_SUCCESS;
    };
    library_.state = [](int pid, CUprocessState* state) {
      *state = fake->states[pid];
      return CUDA_SUCCESS;
    };
    library_.lock = [](int pid, CUcheckpointLockArgs* args) {
      EXPECT_EQ(args->timeoutMs, 70u);
      return fake->move(pid, "lock", kRunning, kLocked);
    };
    library_.checkpoint = [](int pid, CUcheckpointCheckpointArgs*) {
      return fake->move(pid, "checkpoint", kLocked, kCheckpointed);
    };
    library_.restore = [](int pid, CUcheckpointRestoreArgs*) {
      return fake->move(pid, "restore", kCheckpointed, kLocked);
    };
    library_.unlock = [](int pid, CUcheckpointUnlockArgs*) {
      return fake->move(pid, "unlock", kLocked, kRunning);
    };
  }
  std::string leave() { return Gang(library_, targets_).leave(70); }
  std::string come_back() { return Gang(library_, targets_).come_back(); }
  bool both_are(CUprocessState state) {
    return driver_.states[one_] == state && driver_.states[two_] == state;
  }

  const pid_t one_ = getpid();
  const pid_t two_ = getppid();
  FakeDriver driver_;
  DriverLibrary library_{};
  std::vector<Target> targets_;
};

TEST_F(GangTest, AllLeaveAndComeBack) {
  EXPECT_EQ(leave(), "");
  EXPECT_TRUE(both_are(kCheckpointed));
  EXPECT_EQ(come_back(), "");
  EXPECT_TRUE(both_are(kRunning));
}

TEST_F(GangTest, WhereverOneFailsAllAreAsBefore) {
  for (std::size_t step = 1; step <= 4; ++step) {  // two locks, two checkpoints
    driver_.calls.clear();
    driver_.fails_at = step;
    const std::string why = leave();
    EXPECT_NE(why.find("SOME_ERROR"), std::string::npos) << step;
    EXPECT_TRUE(both_are(kRunning)) << step;
  }
}

TEST_F(GangTest, WhatCouldNotBeUndoneIsTold) {
  driver_.fails_at = 4;
  driver_.states[one_] = kRunning;
  library_.restore = [](int, CUcheckpointRestoreArgs*) { return CUDA_ERROR_OUT_OF_MEMORY; };
  const std::string why = leave();
  EXPECT_NE(why.find("cuCheckpointProcessCheckpoint"), std::string::npos);
  EXPECT_NE(why.find("cuCheckpointProcessRestore"), std::string::npos);
}

TEST_F(GangTest, NobodyIsLockedWhereOneIsNotRunning) {
  driver_.states[two_] = kLocked;  // another tool's
  EXPECT_NE(leave(), "");
  EXPECT_TRUE(driver_.calls.empty());
}

TEST_F(GangTest, ComesBackFromWhereverAKilledHelperLeftIt) {
  driver_.states = {{one_, kCheckpointed}, {two_, kLocked}};
  EXPECT_EQ(come_back(), "");
  EXPECT_TRUE(both_are(kRunning));
}

TEST_F(GangTest, WhoTheDriverHasGivenUpDoesNotKeepTheOthers) {
  driver_.states = {{one_, CU_PROCESS_STATE_FAILED}, {two_, kCheckpointed}};
  Gang gang(library_, targets_);
  EXPECT_EQ(gang.come_back(), "");
  EXPECT_EQ(driver_.states[two_], kRunning);
  EXPECT_EQ(gang.lost(),
            "process " + std::to_string(one_) + " has failed for good, as the driver says");
  driver_.states[one_] = kRunning;
  Gang whole(library_, targets_);
  EXPECT_EQ(whole.come_back(), "");
  EXPECT_EQ(whole.lost(), "");
}

TEST_F(GangTest, AProcessThatIsAnotherByNowIsLeftAlone) {
  driver_.states = {{one_, kCheckpointed}, {two_, kCheckpointed}};
  ++targets_[1].start_ticks;
  EXPECT_EQ(come_back(), "");
  EXPECT_EQ(driver_.states[two_], kCheckpointed);
}

TEST(Target, IsAPidAndItsStart) {
  Target target;
  EXPECT_TRUE(parse_target("12:3456", &target));
  EXPECT_EQ(target.pid, 12);
  EXPECT_EQ(target.start_ticks, 3456u);
  for (const char* wrong : {"", "12", "12:", "x:1", "-1:1", "12:1x"}) {
    EXPECT_FALSE(parse_target(wrong, &target)) << wrong;
  }
}

}  // namespace
}  // namespace plexrl::checkpoint
