#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "nodemgr/clock.h"
#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

/// A runs with 300 MiB; B, with as much that is not in HBM, waits for it. There is room for both.
class ManagerPrefetchTest : public ManagerTest {
 protected:
  void begin(std::uint64_t more_features_of_b) {
    job_a_.emplace(admit(300 * kMiB, "a"));
    job_b_.emplace(admit(300 * kMiB, "b"));
    a_.emplace(join_with(*job_a_, {0}, 300 * kMiB));
    more_features_ = more_features_of_b;
    b_.emplace(join_with(*job_b_, {0}, 300 * kMiB));
    run(*a_);
    b().send(Type::kWantLease, wire::WantLease{1, 0}, 0);
    pump();
  }
  /// B says that so much has come.
  void answer(std::uint64_t bytes) {
    wire::Prefetched prefetched{};
    prefetched.moved_bytes = prefetched.resident_bytes = bytes;
    prefetched.start_ns = prefetched.end_ns = static_cast<std::uint64_t>(boot_now().count());
    b().send(Type::kPrefetched, prefetched, 0);
    pump();
  }
  wire::Grant grant_after_a() {
    report_idle(*a_);
    wire::Withdraw withdraw{};
    wait_for_withdraw(*a_, withdraw);
    a_->peer.send(Type::kDrained, wire::Drained{withdraw.epoch, withdraw.attempt, 0, 0}, 0);
    pump();
    return b().expect<wire::Grant>(Type::kGrant);
  }

  FakePeer& b() { return b_->peer; }

  std::optional<FakeJob> job_a_, job_b_;
  std::optional<FakeProcess> a_, b_;
};

constexpr std::uint64_t kNew = wire::kFeaturePrefetch;

TEST_F(ManagerPrefetchTest, WhatHasComeIsNotLoadedAgain) {
  begin(kNew);
  const auto prefetch = b().expect<wire::Prefetch>(Type::kPrefetch);
  EXPECT_EQ(prefetch.gpu, 0u);
  EXPECT_EQ(prefetch.bytes, 300 * kMiB);
  EXPECT_GT(prefetch.bytes_per_s, 0u);
  answer(300 * kMiB);
  EXPECT_EQ(admin("gpus")["gpus"][0]["in_bytes"], 300 * kMiB);
  EXPECT_EQ(grant_after_a().flags & wire::kGrantRunNow, std::uint32_t{wire::kGrantRunNow});
}

TEST_F(ManagerPrefetchTest, WhatHasNotComeIsLoaded) {
  begin(kNew);
  b().expect<wire::Prefetch>(Type::kPrefetch);
  EXPECT_EQ(grant_after_a().flags & wire::kGrantRunNow, 0u);
  answer(100 * kMiB);
  wire::Loaded loaded{};
  loaded.epoch = manager_->leases().gangs().rbegin()->second.epoch;
  loaded.moved_bytes = 200 * kMiB;
  b().send(Type::kLoaded, loaded, 0);
  pump();
  b().expect<wire::LeaseRef>(Type::kRun);
}

TEST_F(ManagerPrefetchTest, AProcessOfAnOlderVersionIsNotAsked) {
  begin(0);
  EXPECT_FALSE(b().next());
  EXPECT_EQ(grant_after_a().flags & wire::kGrantRunNow, 0u);
}

TEST_F(ManagerPrefetchTest, WhatHasComeIsNotOnItsWayAnyMore) {
  begin(kNew);
  b().expect<wire::Prefetch>(Type::kPrefetch);
  const std::int64_t before = manager_->leases().state().free_bytes(0);
  wire::MemoryReport report{};
  report.resident_bytes = report.kind_bytes[0] = 100 * kMiB;
  report.host_bytes = 200 * kMiB;
  b().send(Type::kMemoryReport, report, 0);
  pump();
  EXPECT_EQ(manager_->leases().state().free_bytes(0), before);
  answer(300 * kMiB);
  EXPECT_EQ(manager_->leases().state().free_bytes(0), before);
  EXPECT_FALSE(b().next());
}

TEST_F(ManagerPrefetchTest, WhoDiesMeanwhileTakesNoRoomAnyMore) {
  begin(kNew);
  b().expect<wire::Prefetch>(Type::kPrefetch);
  const int gpu = 0;
  const std::int64_t before = manager_->leases().state().free_bytes(gpu);
  b().kill();
  while (manager_->leases().state().free_bytes(gpu) == before)
    manager_->run_once(std::chrono::nanoseconds(-1));
  EXPECT_GE(manager_->leases().state().free_bytes(gpu),
            before + static_cast<std::int64_t>(300 * kMiB));
}

TEST_F(ManagerPrefetchTest, AnAnswerThatMakesNoSenseBreaksTheConnection) {
  begin(kNew);
  b().expect<wire::Prefetch>(Type::kPrefetch);
  wire::Prefetched prefetched{};
  prefetched.gpu = 7;
  b().send(Type::kPrefetched, prefetched, 0);
  pump();
  EXPECT_TRUE(b().is_cut_off());
}

}  // namespace
}  // namespace plexrl::nodemgr::test
