#include "nodemgr/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace plexrl::nodemgr {
namespace {

using ::testing::HasSubstr;

constexpr JobKey kA = 1;
constexpr JobKey kB = 2;
constexpr SessionKey kOne = 11;
constexpr SessionKey kTwo = 12;

/// One GPU of 1000 bytes for jobs, 50 for a process, 10000 of host memory.
class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() {
    ledger.set_gpu(0, 1000, 50);
    ledger.set_host_budget(10000);
  }
  Ledger ledger;
};

TEST_F(LedgerTest, APromisePlusTheProcessMustFitTheGpu) {
  EXPECT_TRUE(ledger.judge(1, 950).fits);
  Admission admission = ledger.judge(1, 951);
  EXPECT_FALSE(admission.fits);
  EXPECT_THAT(admission.text, HasSubstr("951B"));
  EXPECT_THAT(admission.text, HasSubstr("--memory"));
}

TEST_F(LedgerTest, WhatNeverFitsIsToldFromWhatMayFitLater) {
  ledger.set_gpu(0, 700, 50, /*others=*/300, /*most=*/1000);
  ledger.set_gpu(1, 800, 50);
  EXPECT_FALSE(ledger.judge(1, 900).fits);
  EXPECT_FALSE(ledger.judge(1, 900).never);  // the others may end
  EXPECT_THAT(ledger.judge(1, 900).text, HasSubstr("outside PlexRL"));
  EXPECT_TRUE(ledger.judge(1, 951).never);
  EXPECT_TRUE(ledger.judge(3, 900).never);  // not on GPU 1
  ledger.set_gpu(1, 1000, 50);
  ledger.admit(kA, 1, 650);
  EXPECT_FALSE(ledger.judge(1, 650).never);
}

TEST_F(LedgerTest, AnotherProcessMustLeaveEarlierPromisesGood) {
  ledger.admit(kA, 1, 950);
  EXPECT_FALSE(ledger.judge(1, 100).fits);
  ledger.admit(kA, 1, 900);
  EXPECT_TRUE(ledger.judge(1, 100).fits);
}

TEST_F(LedgerTest, PromisesBeyondHbmMustFitHostMemory) {
  ledger.set_host_budget(500);
  ledger.admit(kA, 1, 700);
  EXPECT_TRUE(ledger.judge(1, 700).fits);
  Admission admission = ledger.judge(1, 850);
  EXPECT_FALSE(admission.fits);
  EXPECT_EQ(admission.needed, 650u) << "700 + 850, and 50 for a process of each";
  EXPECT_EQ(admission.available, 500u);
  EXPECT_THAT(admission.text, HasSubstr("host memory"));
}

TEST_F(LedgerTest, ACheckpointedProcessLeavesItsRoomToOthersAndNeedsItToComeBack) {
  ledger.admit(kA, 1, 600);
  ledger.attach(kOne, kA, 0, 200);
  EXPECT_FALSE(ledger.judge(1, 800).fits) << "200 of the process there, 50 of its own";
  ledger.place({kOne}, Ledger::Place::kLeaving);
  EXPECT_FALSE(ledger.judge(1, 800).fits) << "it may stay yet";
  ledger.place({kOne}, Ledger::Place::kAway);
  EXPECT_TRUE(ledger.judge(1, 800).fits);
  ledger.admit(kB, 1, 800);
  EXPECT_FALSE(ledger.can_return({kOne}));
  ledger.release(kB);
  EXPECT_TRUE(ledger.can_return({kOne}));
}

TEST_F(LedgerTest, ACheckpointedProcessComesBackOnlyBesideItsOwnPromise) {
  ledger.admit(kA, 1, 600);
  ledger.attach(kOne, kA, 0, 200);
  ledger.place({kOne}, Ledger::Place::kAway);
  ledger.admit(kB, 1, 300);
  ledger.attach(kTwo, kB, 0, 250);
  EXPECT_FALSE(ledger.can_return({kOne})) << "600 + 200 + 250 are more than 1000";
}

TEST_F(LedgerTest, WhatIsCheckpointedIsBookedInHostMemoryBeforeItLeaves) {
  ledger.set_host_budget(449);
  ledger.admit(kA, 1, 600);
  ledger.attach(kOne, kA, 0, 200);
  ASSERT_TRUE(ledger.charge(kOne, 0, 200, false));
  ASSERT_TRUE(ledger.charge(kOne, 0, 50, true));
  EXPECT_FALSE(ledger.can_leave({kOne})) << "200 + 200 + 50";
  ledger.set_host_budget(450);
  EXPECT_TRUE(ledger.can_leave({kOne}));
  EXPECT_EQ(ledger.host_needed(), 0u);
  ledger.place({kOne}, Ledger::Place::kLeaving);
  EXPECT_EQ(ledger.host_needed(), 450u);
  ledger.place({kOne}, Ledger::Place::kHere);
  EXPECT_EQ(ledger.host_needed(), 0u);
}

TEST_F(LedgerTest, ABudgetPromisesNoMoreThanTheHostHas) {
  ledger.set_host_budget(500);
  ledger.admit(kA, 1, 900);
  ASSERT_TRUE(ledger.judge(1, 400).fits) << "900 and 400 with 50 each: 400 more than the GPU has";
  ledger.set_host_has(399);
  const Admission over = ledger.judge(1, 400);
  EXPECT_FALSE(over.fits);
  EXPECT_FALSE(over.never) << "memory may come back";
  EXPECT_EQ(over.available, 399u);
  EXPECT_THAT(over.text, HasSubstr("no more than 399B of host memory are to be had now"));
  EXPECT_EQ(ledger.promised(kA, 0), 900u) << "what was promised stays";
  ledger.set_host_has(400);
  EXPECT_TRUE(ledger.judge(1, 400).fits);
}

TEST_F(LedgerTest, ACheckpointedProcessComesBackWhateverIsOnOtherGpus) {
  ledger.set_gpu(1, 1000, 50);
  ledger.admit(kA, 1, 600);
  ledger.attach(kOne, kA, 0, 200);
  ledger.place({kOne}, Ledger::Place::kAway);
  ledger.admit(kB, 2, 800);
  for (const SessionKey session : {kTwo, kTwo + 1}) ledger.attach(session, kB, 1, 150);
  ASSERT_FALSE(ledger.holds_promises(1)) << "more processes came there than was foreseen";
  EXPECT_TRUE(ledger.can_return({kOne}));
}

TEST_F(LedgerTest, HostMemoryIsCountedGpuByGpu) {
  // The empty second GPU does not help the first: bytes never move between GPUs.
  ledger.set_gpu(1, 1000, 50);
  ledger.set_host_budget(300);
  ledger.admit(kA, 1, 700);
  EXPECT_FALSE(ledger.judge(1, 700).fits);
  EXPECT_TRUE(ledger.judge(2, 700).fits);
}

TEST_F(LedgerTest, WhoNamesNoFigureGetsWhatIsLeftForOneOfThree) {
  EXPECT_EQ(ledger.judge(1, 0).promised, 850u);
  ledger.admit(kA, 1, 850);
  EXPECT_EQ(ledger.judge(1, 0).promised, 850u);
}

TEST_F(LedgerTest, AGpuThatTheNodeLacksIsRefused) {
  EXPECT_FALSE(ledger.judge(4, 10).fits);
  EXPECT_FALSE(ledger.judge(5, 10).fits);
}

TEST_F(LedgerTest, ChargesStayWithinTheJobsPromise) {
  ledger.admit(kA, 1, 500);
  ledger.attach(kOne, kA, 0, 0);
  ledger.attach(kTwo, kA, 0, 0);
  EXPECT_TRUE(ledger.charge(kOne, 0, 300, false));
  EXPECT_FALSE(ledger.charge(kTwo, 0, 201, false));
  EXPECT_TRUE(ledger.charge(kTwo, 0, 200, false));
  EXPECT_EQ(ledger.used(kA, 0), 500u);
  ledger.uncharge(kOne, 0, 1000, false);
  EXPECT_EQ(ledger.used(kA, 0), 200u);
}

TEST_F(LedgerTest, HugeChargesDoNotWrapRound) {
  ledger.admit(kA, 1, 500);
  ledger.attach(kOne, kA, 0, 0);
  EXPECT_TRUE(ledger.charge(kOne, 0, 400, false));
  EXPECT_FALSE(ledger.charge(kOne, 0, ~0ull, false));
  EXPECT_FALSE(ledger.charge(kOne, 0, ~0ull - 300, true));
  EXPECT_EQ(ledger.used(kA, 0), 400u);
}

TEST_F(LedgerTest, UnpageableBytesMustLeaveOtherPromisesGood) {
  ledger.admit(kA, 1, 600);
  ledger.admit(kB, 1, 600);
  ledger.attach(kOne, kA, 0, 0);
  EXPECT_TRUE(ledger.charge(kOne, 0, 300, true));
  EXPECT_FALSE(ledger.charge(kOne, 0, 1, true));
  EXPECT_TRUE(ledger.charge(kOne, 0, 300, false));
}

TEST_F(LedgerTest, PinnedBytesAreChargedOnceAndMustLeaveOtherPromisesGood) {
  ledger.admit(kA, 1, 600);
  ledger.admit(kB, 1, 600);
  ledger.attach(kOne, kA, 0, 0);
  EXPECT_TRUE(ledger.charge(kOne, 0, 500, false));
  EXPECT_FALSE(ledger.pin(kOne, 0, 501)) << "more than is charged";
  EXPECT_FALSE(ledger.pin(kOne, 0, 301)) << "B would not fit any more";
  EXPECT_TRUE(ledger.pin(kOne, 0, 300));
  EXPECT_EQ(ledger.used(kA, 0), 500u);
  EXPECT_EQ(ledger.unpageable(kOne, 0), 300u);
  EXPECT_FALSE(ledger.charge(kOne, 0, 1, true));
  ledger.unpin(kOne, 0, 1000);
  EXPECT_EQ(ledger.pageable(kOne, 0), 500u);
  EXPECT_EQ(ledger.unpageable(kOne, 0), 0u);
  EXPECT_FALSE(ledger.pin(kTwo, 0, 1)) << "nobody";
}

TEST_F(LedgerTest, AMeasuredProcessTakesWhatWasMeasured) {
  ledger.admit(kA, 1, 850);
  ledger.attach(kOne, kA, 0, 10);
  EXPECT_EQ(ledger.overhead(kOne, 0), 10u);
  EXPECT_TRUE(ledger.judge(1, 890).fits);
  EXPECT_FALSE(ledger.judge(1, 941).fits);
}

TEST_F(LedgerTest, TheEndOfAProcessGivesBackAllItHad) {
  ledger.admit(kA, 1, 500);
  ledger.attach(kOne, kA, 0, 0);
  ledger.charge(kOne, 0, 500, false);
  ledger.detach(kOne);
  EXPECT_EQ(ledger.used(kA, 0), 0u);
}

TEST_F(LedgerTest, WhateverIsAdmittedAndChargedEveryPromiseCanBeMet) {
  constexpr std::uint64_t kHostBudget = 900;
  ledger.set_host_budget(kHostBudget);
  std::mt19937_64 rng(7);
  std::map<JobKey, SessionKey> jobs;
  JobKey next = 100;
  for (int i = 0; i < 5000; ++i) {
    std::uint64_t bytes = rng() % 400;
    if (rng() % 4 == 0) {
      Admission admission = ledger.judge(1, bytes);
      if (admission.fits) {
        ledger.admit(next, 1, admission.promised);
        ledger.attach(next + 100000, next, 0, 0);
        jobs[next] = next + 100000;
        ++next;
      }
    } else if (!jobs.empty()) {
      auto it = std::next(jobs.begin(), static_cast<long>(rng() % jobs.size()));
      switch (rng() % 6) {
        case 0:
          ledger.detach(it->second);
          ledger.release(it->first);
          jobs.erase(it);
          break;
        case 1:
          ledger.uncharge(it->second, 0, bytes, rng() % 2 == 0);
          break;
        case 2:
          ledger.pin(it->second, 0, bytes);
          break;
        case 3:
          ledger.unpin(it->second, 0, bytes);
          break;
        default:
          ledger.charge(it->second, 0, bytes, rng() % 2 == 0);
      }
    }
    std::uint64_t fixed = 0;
    std::uint64_t promises = 0;
    for (auto [job, session] : jobs) {
      fixed += ledger.unpageable(session, 0) + 50;
      promises += ledger.promised(job, 0);
    }
    // All promises full: what HBM does not hold has room on the host.
    ASSERT_LE(promises, 1000u + kHostBudget) << "step " << i;
    ASSERT_LE(ledger.host_needed(), kHostBudget) << "step " << i;
    for (auto [job, session] : jobs) {
      std::uint64_t own = ledger.unpageable(session, 0);
      ASSERT_LE(ledger.promised(job, 0) + fixed - own, 1000u) << "step " << i;
      ASSERT_LE(ledger.used(job, 0), ledger.promised(job, 0)) << "step " << i;
    }
  }
}

TEST_F(LedgerTest, AJobThatIsKnownIsJudgedByWhatItsProcessesTook) {
  EXPECT_FALSE(ledger.judge(1, 960).fits);
  EXPECT_TRUE(ledger.judge(1, 960, 20).fits);
  EXPECT_FALSE(ledger.judge(1, 940, 80).fits);
  // Booked for it until its process is there, and for the process from then on.
  ledger.admit(kA, 1, 500, 200);
  EXPECT_EQ(ledger.judge(1, 0).available, 750u);
  ledger.attach(kOne, kA, 0, 0);
  EXPECT_EQ(ledger.overhead(kOne, 0), 200u);
  EXPECT_EQ(ledger.judge(1, 0).available, 750u);
}

TEST_F(LedgerTest, AMeasuredOverheadRaisesWhatIsBookedAndTouchesNoPromise) {
  ledger.admit(kA, 1, 900);
  ledger.attach(kOne, kA, 0, 0);
  ledger.measured(kOne, 0, 10);
  EXPECT_EQ(ledger.overhead(kOne, 0), 50u) << "it may have more to load";
  ledger.measured(kOne, 0, 120);
  EXPECT_EQ(ledger.overhead(kOne, 0), 120u);
  EXPECT_EQ(ledger.promised(kA, 0), 900u);
  EXPECT_TRUE(ledger.charge(kOne, 0, 900, false));
  EXPECT_FALSE(ledger.judge(1, 100).fits);
  ledger.measured(kOne, 0, 60);
  EXPECT_EQ(ledger.overhead(kOne, 0), 60u) << "what was measured too high does not stay";
}

TEST_F(LedgerTest, TheDiskCountsLessTheHostMemoryOfTheWayThere) {
  ledger.set_host_budget(300);
  ledger.set_disk(500, 40);
  ledger.admit(kA, 1, 900);
  // 900 + 50 are promised; of one more, its 50 and two ways to the disk the host has 220 beside
  // 500.
  EXPECT_TRUE(ledger.judge(1, 720).fits);
  const Admission over = ledger.judge(1, 721);
  EXPECT_FALSE(over.fits);
  EXPECT_EQ(over.available, 720u);
  EXPECT_THAT(over.text, HasSubstr("host memory and disk"));
  EXPECT_THAT(over.text, HasSubstr("[disk] budget"));
  ledger.attach(kOne, kA, 0, 0);
  ledger.attach(kTwo, kA, 0, 0);
  EXPECT_FALSE(ledger.judge(1, 720).fits) << "a second process needs a way, too";
}

TEST_F(LedgerTest, WithADiskTheHostNeedsRoomForTheWaysThere) {
  ledger.set_host_budget(79);
  ledger.set_disk(5000, 40);
  EXPECT_TRUE(ledger.judge(1, 100).fits);
  ledger.admit(kA, 1, 100);
  EXPECT_FALSE(ledger.judge(1, 100).fits);
}

TEST_F(LedgerTest, AFullDiskTakesNoPromiseBack) {
  ledger.set_host_budget(300);
  ledger.set_disk(500, 40);
  ledger.admit(kA, 1, 900);
  ledger.admit(kB, 1, 700);
  ledger.attach(kOne, kB, 0, 0);
  ledger.set_disk(0, 40);  // others have filled it
  EXPECT_FALSE(ledger.judge(1, 100).fits);
  EXPECT_EQ(ledger.promised(kB, 0), 700u);
  EXPECT_TRUE(ledger.charge(kOne, 0, 700, false));
}

TEST_F(LedgerTest, WhatTheDriverTakesOffAGpuDoesNotGoToDisk) {
  ledger.set_host_budget(100);
  ledger.set_disk(5000, 40);
  ledger.admit(kA, 1, 500);
  ledger.attach(kOne, kA, 0, 50);
  EXPECT_TRUE(ledger.can_leave({kOne})) << "50 and a way of 40";
  EXPECT_TRUE(ledger.charge(kOne, 0, 11, true));
  EXPECT_FALSE(ledger.can_leave({kOne}));
}

}  // namespace
}  // namespace plexrl::nodemgr
