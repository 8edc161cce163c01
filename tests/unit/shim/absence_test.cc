#include "shim/absence.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace plexrl::shim {
namespace {

/// The process's own, as the calls know no other; enabled once, for all tests.
class AbsenceTest : public ::testing::Test {
 protected:
  AbsenceTest() {
    absence.enable([]() noexcept {});
  }
  ~AbsenceTest() override { absence.end(); }
};

TEST_F(AbsenceTest, ACallThatComesMeanwhileWaitsForTheEnd) {
  ASSERT_EQ(absence.begin(0), nullptr);
  std::atomic<bool> passed{false};
  std::thread job([&] {
    const Absence::Call call;
    passed = true;
  });
  while (absence.waiters() == 0) std::this_thread::yield();
  EXPECT_FALSE(passed);
  absence.end();
  job.join();
  EXPECT_TRUE(passed);
}

TEST_F(AbsenceTest, ACallOfAHandlerThatCameBeforeTheCallAroundItLookedWaitsToo) {
  ASSERT_EQ(absence.begin(0), nullptr);
  std::atomic<bool> passed{false};
  std::thread job([&] {
    claim_slot()->in_driver = 1;  // as the call that a handler has interrupted leaves it
    { const Absence::Call of_the_handler; }
    passed = true;
    this_slot->in_driver = 0;
  });
  while (absence.waiters() == 0) std::this_thread::yield();
  EXPECT_FALSE(passed);
  absence.end();
  job.join();
  EXPECT_TRUE(passed);
}

TEST_F(AbsenceTest, DoesNotBeginWhileAThreadIsInside) {
  const Absence::Call call;
  {
    const Absence::Call inner;  // calls inside calls pass, and leave the outer one inside
  }
  EXPECT_STREQ(absence.begin(0), "a thread is inside the driver");
  EXPECT_FALSE(absence.is_on());
}

TEST_F(AbsenceTest, DoesNotBeginWhenAThreadWasInsideALittleBefore) {
  { const Absence::Call call; }
  EXPECT_STREQ(absence.begin(3'600'000'000'000), "a thread still calls the driver now and then");
  EXPECT_EQ(absence.begin(0), nullptr);
}

TEST_F(AbsenceTest, AThreadThatWaitsAtTheGateIsNotInside) {
  const Absence::Call call;
  const std::uint32_t depth = absence.step_out();
  EXPECT_EQ(absence.begin(0), nullptr);
  std::thread manager([] {
    while (absence.waiters() == 0) std::this_thread::yield();
    absence.end();
  });
  absence.step_in(depth);  // waits, as a call that comes
  manager.join();
  EXPECT_STREQ(absence.begin(0), "a thread is inside the driver");
}

}  // namespace
}  // namespace plexrl::shim
