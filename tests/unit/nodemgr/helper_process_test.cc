#include "nodemgr/helper_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <optional>

#include "nodemgr/clock.h"

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

class HelperProcessTest : public ::testing::Test {
 protected:
  HelperProcess::End run(const std::string& script, std::chrono::nanoseconds patience = 1h) {
    std::optional<HelperProcess::End> end;
    HelperProcess helper(loop_, 1);
    EXPECT_TRUE(helper.start({"/bin/sh", "-c", script}, patience,
                             [&](const HelperProcess::End& how) { end = how; }));
    while (!end) loop_.run_once(-1ns);
    EXPECT_FALSE(helper.is_running());
    return *end;
  }

  EventLoop loop_;
};

TEST_F(HelperProcessTest, OneThatSucceedsMaySayALine) {
  const HelperProcess::End end = run("echo process 7 is lost; echo more");
  EXPECT_TRUE(end.ok);
  EXPECT_EQ(end.text, "process 7 is lost");
}

TEST_F(HelperProcessTest, OneThatFailsSaysWhy) {
  const HelperProcess::End end = run("echo no such driver; exit 1");
  EXPECT_FALSE(end.ok);
  EXPECT_TRUE(end.ran);
  EXPECT_EQ(end.text, "no such driver");
}

TEST_F(HelperProcessTest, OneThatDidNothingIsToldFromOneThatFailed) {
  EXPECT_FALSE(run("exit 3").ran);
  EXPECT_EQ(run("exit 4").text, "the helper ended with 4");
}

TEST_F(HelperProcessTest, OneThatWasKilledFailed) {
  const HelperProcess::End end = run("kill -9 $$");
  EXPECT_FALSE(end.ok);
  EXPECT_EQ(end.text, "the helper was killed by signal 9");
}

TEST_F(HelperProcessTest, OneThatIsLateIsKilled) {
  const HelperProcess::End end = run("exec sleep 3600", 1ns);
  EXPECT_FALSE(end.ok);
  EXPECT_TRUE(end.ran);
  EXPECT_EQ(end.text, "the helper did not end in time and was killed");
}

TEST_F(HelperProcessTest, OneWhoseEndNobodyKnowsHasNotSucceeded) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  // It is reaped at its end, and must not be before it is watched.
  const HelperProcess::End end = run("exec sleep 3600", 1ns);
  ::signal(SIGCHLD, before);
  EXPECT_FALSE(end.ok);
  EXPECT_TRUE(end.ran);
}

}  // namespace
}  // namespace plexrl::nodemgr
