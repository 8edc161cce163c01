#include "shim/range_table.h"

#include <gtest/gtest.h>

#include "tests/unit/shim/fake_driver.h"

namespace plexrl::shim {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
const auto kContext = reinterpret_cast<CUcontext>(0x10);

class RangeTableTest : public ::testing::Test {
 protected:
  void SetUp() override { table_.set_geometry(8 * kMiB, 2 * kMiB); }
  Range* reserve(std::size_t bytes) {
    Range* range = nullptr;
    EXPECT_EQ(table_.reserve(0, kContext, bytes, false, &range), CUDA_SUCCESS);
    return range;
  }
  void make_resident(Range* range) {
    while (const auto claim = table_.claim_missing(0, 100, range)) {
      for (std::size_t i = 0; i < claim->count; ++i) {
        EXPECT_EQ(table_.settle(*claim, claim->first + i, ChunkState::kResident), nullptr);
      }
    }
  }

  testing::FakeDriver driver_;
  RangeTable table_;
};

TEST_F(RangeTableTest, LargeRangesAreCutIntoChunks) {
  const Range* range = reserve(17 * kMiB);
  ASSERT_EQ(range->chunks.size(), 3u);
  EXPECT_EQ(range->chunks[0].bytes, 8 * kMiB);
  EXPECT_EQ(range->chunks[2].bytes, 2 * kMiB);
  EXPECT_EQ(range->mapped_bytes, 18 * kMiB);
  EXPECT_EQ(table_.totals(0).unbacked, 18 * kMiB);
}

TEST_F(RangeTableTest, ReservingUsesNoHbmAndFewReservations) {
  for (int i = 0; i < 50; ++i) reserve(3 * kMiB);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  EXPECT_EQ(driver_.calls("cuMemAddressReserve"), 1);
}

TEST_F(RangeTableTest, NoAddressesLeftIsOutOfMemory) {
  driver_.fail_always("cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY);
  Range* range = nullptr;
  EXPECT_EQ(table_.reserve(0, kContext, kMiB, false, &range), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(range, nullptr);
}

TEST_F(RangeTableTest, DescribesByAnyAddressInside) {
  const Range* range = reserve(3 * kMiB);
  EXPECT_EQ(table_.describe(range->start + 3 * kMiB - 1)->start, range->start);
  EXPECT_FALSE(table_.describe(range->start + 3 * kMiB));
}

TEST_F(RangeTableTest, AClaimedChunkIsNobodyElses) {
  Range* range = reserve(16 * kMiB);
  const auto claim = table_.claim_missing(0, 1);
  ASSERT_TRUE(claim);
  const auto other = table_.claim_missing(0, 10);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->first, claim->first + 1);
  EXPECT_FALSE(table_.claim_missing(0, 10));
  EXPECT_EQ(table_.totals(0).moving, range->mapped_bytes);
}

TEST_F(RangeTableTest, GateMayOpenOnlyWhenEveryChunkIsBacked) {
  Range* range = reserve(16 * kMiB);
  bool opened = false;
  EXPECT_FALSE(table_.when_complete([&] { opened = true; }));
  EXPECT_FALSE(opened);
  make_resident(range);
  EXPECT_TRUE(table_.when_complete([&] { opened = true; }));
  EXPECT_TRUE(opened);
}

TEST_F(RangeTableTest, VictimsAreTheLeastRecentlyUsed) {
  Range* first = reserve(8 * kMiB);
  Range* second = reserve(8 * kMiB);
  make_resident(first);
  make_resident(second);
  table_.note_use(first->start);
  const auto victims = table_.claim_victims(0, 1);
  ASSERT_EQ(victims.size(), 1u);
  EXPECT_EQ(victims[0].range, second);
}

TEST_F(RangeTableTest, ARangeFreedWhileItMovesGoesToTheMover) {
  Range* range = reserve(8 * kMiB);
  const std::uint64_t start = range->start;
  const auto claim = table_.claim_missing(0, 10);
  std::size_t freed = 0;
  EXPECT_EQ(table_.remove(start, &freed), nullptr);
  EXPECT_EQ(freed, 8 * kMiB);
  EXPECT_FALSE(table_.describe(start));
  EXPECT_EQ(table_.charged_bytes(0), 0u);
  const auto doomed = table_.settle(*claim, 0, ChunkState::kUnbacked);
  ASSERT_NE(doomed, nullptr);
  EXPECT_EQ(doomed->start, start);
  table_.return_addresses(*doomed);
}

TEST_F(RangeTableTest, AddressesAreReusedOnlyAfterTheyAreReturned) {
  const std::uint64_t start = reserve(8 * kMiB)->start;
  std::size_t freed = 0;
  const auto range = table_.remove(start, &freed);
  EXPECT_NE(reserve(8 * kMiB)->start, start);
  table_.return_addresses(*range);
  EXPECT_EQ(reserve(8 * kMiB)->start, start);
}

TEST_F(RangeTableTest, IdentifiersAreNeverReused) {
  const std::uint64_t first = reserve(8 * kMiB)->identifier;
  EXPECT_NE(reserve(8 * kMiB)->identifier, first);
}

}  // namespace
}  // namespace plexrl::shim
