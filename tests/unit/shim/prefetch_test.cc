// Memory that comes back before there is a lease (kPrefetch).
#include <gtest/gtest.h>

#include "tests/unit/shim/process_fixture.h"

namespace plexrl::shim {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kChunk = 4 * kMiB;  // as the fake manager says

class PrefetchTest : public testing::ProcessTest {
 protected:
  /// Two pieces of memory with contents, in the host: chunks of 4, 2 and 4 MiB. No lease.
  void SetUp() override {
    ProcessTest::SetUp();
    one_ = allocate(6 * kMiB);
    two_ = allocate(4 * kMiB);
    const wire::Epoch epoch = hold_lease();
    EXPECT_TRUE(driver_.write(one_, content(6 * kMiB, 3)));
    EXPECT_TRUE(driver_.write(two_, content(4 * kMiB, 5)));
    take_lease_back(epoch);
    EXPECT_EQ(evict(10 * kMiB).freed_bytes, 10 * kMiB);
  }
  static std::vector<std::byte> content(std::size_t bytes, unsigned factor) {
    std::vector<std::byte> data(bytes);
    for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * factor >> 3);
    return data;
  }
  wire::Prefetched prefetch(std::uint64_t bytes, std::uint64_t bytes_per_s = 0) {
    manager_.send(wire::Type::kPrefetch, wire::Prefetch{0, 0, bytes, bytes_per_s});
    return answer();
  }
  /// Begins one that goes on for hours after its first chunk, and returns when that is on its way.
  void begin_slow_prefetch() {
    const int before = driver_.calls("cuMemcpyHtoDAsync_v2");
    manager_.send(wire::Type::kPrefetch, wire::Prefetch{0, 0, 10 * kMiB, 100});
    while (driver_.calls("cuMemcpyHtoDAsync_v2") == before) std::this_thread::yield();
  }
  wire::Prefetched answer() {
    return *manager_.wait_for(wire::Type::kPrefetched)->as<wire::Prefetched>();
  }
  void expect_contents() {
    std::vector<std::byte> found(6 * kMiB);
    EXPECT_TRUE(driver_.read(one_, &found));
    EXPECT_EQ(found, content(6 * kMiB, 3));
    found.resize(4 * kMiB);
    EXPECT_TRUE(driver_.read(two_, &found));
    EXPECT_EQ(found, content(4 * kMiB, 5));
  }

  CUdeviceptr one_ = 0, two_ = 0;
};

TEST_F(PrefetchTest, MemoryComesBackWithoutALease) {
  const wire::Prefetched prefetched = prefetch(10 * kMiB);
  EXPECT_EQ(prefetched.moved_bytes, 10 * kMiB);
  EXPECT_EQ(prefetched.resident_bytes, 10 * kMiB);
  EXPECT_LE(prefetched.start_ns, prefetched.end_ns);
  EXPECT_FALSE(gate.is_open());
  expect_contents();
  hold_lease();
  expect_contents();
}

TEST_F(PrefetchTest, NoMoreThanAskedFor) {
  EXPECT_EQ(prefetch(5 * kMiB).resident_bytes, kChunk) << "whole chunks";
  EXPECT_EQ(prefetch(kMiB).moved_bytes, 0u);
}

TEST_F(PrefetchTest, AWrongGuessLeavesWithoutACopy) {
  prefetch(10 * kMiB);
  const wire::Evicted evicted = evict(10 * kMiB);
  EXPECT_EQ(evicted.freed_bytes, 10 * kMiB);
  EXPECT_EQ(evicted.moved_bytes, 0u);
  EXPECT_EQ(evicted.untouched_bytes, 10 * kMiB);
  hold_lease();
  expect_contents();
}

TEST_F(PrefetchTest, AGrantCallsItOff) {
  begin_slow_prefetch();
  hold_lease();
  const wire::Prefetched prefetched = answer();
  EXPECT_EQ(prefetched.moved_bytes, kChunk);
  EXPECT_EQ(prefetched.resident_bytes, kChunk);
  expect_contents();
}

TEST_F(PrefetchTest, AnEvictionCallsItOff) {
  begin_slow_prefetch();
  const wire::Evicted evicted = evict(10 * kMiB);
  EXPECT_EQ(evicted.freed_bytes, kChunk);
  EXPECT_EQ(answer().moved_bytes, kChunk);
  EXPECT_EQ(evicted.resident_bytes, 0u);
}

TEST_F(PrefetchTest, TheNextManagerKnowsOfNone) {
  begin_slow_prefetch();
  manager_.die();
  manager_.start();
  const auto packet = manager_.wait_for(wire::Type::kResumeState);
  EXPECT_LE(packet->as<wire::ResumeState>()->resident_bytes, kChunk);
  EXPECT_EQ(prefetch(10 * kMiB).resident_bytes, 10 * kMiB);
  hold_lease();
  expect_contents();
}

TEST_F(PrefetchTest, WithALeaseThereIsNothingToPrefetch) {
  hold_lease();
  const wire::Prefetched prefetched = prefetch(10 * kMiB);
  EXPECT_EQ(prefetched.moved_bytes, 0u);
  EXPECT_EQ(prefetched.resident_bytes, 10 * kMiB);
  launch();
}

TEST_F(PrefetchTest, WhereTheDriverHasNoMemoryItEnds) {
  driver_.fail("cuMemCreate", 3, CUDA_ERROR_OUT_OF_MEMORY);
  const wire::Prefetched prefetched = prefetch(10 * kMiB);
  EXPECT_EQ(prefetched.resident_bytes, 6 * kMiB);
}

}  // namespace
}  // namespace plexrl::shim
