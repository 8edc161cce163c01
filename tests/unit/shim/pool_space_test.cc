#include "shim/pool_space.h"

#include <gtest/gtest.h>

namespace plexrl::shim {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uint64_t kBase = std::uint64_t{1} << 40;

StreamKey stream(std::uintptr_t number) { return {reinterpret_cast<CUstream>(number), nullptr, 0}; }

FreeMarkPtr mark_in(const StreamKey& where) {
  auto mark = std::make_shared<FreeMark>();
  mark->where = where;
  mark->event = reinterpret_cast<CUevent>(std::uintptr_t{1});
  return mark;
}

class PoolSpaceTest : public ::testing::Test {
 protected:
  void SetUp() override { space_.add_segment(kBase, 4 * kMiB); }
  PoolSpace space_;
};

TEST_F(PoolSpaceTest, AllocationsDontOverlapAndAreAligned) {
  const auto a = space_.take_free(1000);
  const auto b = space_.take_free(1);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*b, *a + 1024);
  EXPECT_EQ(space_.used_bytes(), 1024u + 512u);
}

TEST_F(PoolSpaceTest, WhatIsFullHasNoPlace) {
  ASSERT_TRUE(space_.take_free(4 * kMiB));
  EXPECT_FALSE(space_.take_free(1));
}

TEST_F(PoolSpaceTest, FreedMemoryServesTheSameStreamAtOnceAndNoOther) {
  const auto a = space_.take_free(4 * kMiB);
  ASSERT_TRUE(space_.free(*a, mark_in(stream(7))));
  EXPECT_FALSE(space_.take_free(kMiB));
  EXPECT_FALSE(space_.take_following(kMiB, stream(8)));
  EXPECT_EQ(space_.take_following(kMiB, stream(7)), a);
}

TEST_F(PoolSpaceTest, APieceOfWhatIsBeingFreedLeavesTheRestPending) {
  const auto a = space_.take_free(4 * kMiB);
  auto mark = mark_in(stream(7));
  ASSERT_TRUE(space_.free(*a, mark));
  ASSERT_TRUE(space_.take_following(kMiB, stream(7)));
  mark->is_over = true;
  space_.settle();
  EXPECT_EQ(space_.take_free(3 * kMiB), *a + kMiB);
  EXPECT_FALSE(space_.take_free(1));
}

TEST_F(PoolSpaceTest, NothingFollowsAStreamThatIsGone) {
  const auto a = space_.take_free(4 * kMiB);
  auto mark = mark_in(stream(7));
  ASSERT_TRUE(space_.free(*a, mark));
  mark->follows = false;
  EXPECT_FALSE(space_.take_following(kMiB, stream(7)));
}

TEST_F(PoolSpaceTest, AThreadsOwnDefaultStreamIsNotAnothers) {
  const StreamKey mine{CU_STREAM_PER_THREAD, nullptr, 1}, other{CU_STREAM_PER_THREAD, nullptr, 2};
  const auto a = space_.take_free(4 * kMiB);
  ASSERT_TRUE(space_.free(*a, mark_in(mine)));
  EXPECT_FALSE(space_.take_following(kMiB, other));
  EXPECT_TRUE(space_.take_following(kMiB, mine));
}

TEST_F(PoolSpaceTest, AnotherStreamGetsPendingMemoryWithTheMarkToWaitFor) {
  const auto a = space_.take_free(4 * kMiB);
  auto mark = mark_in(stream(7));
  ASSERT_TRUE(space_.free(*a, mark));
  FreeMarkPtr after;
  EXPECT_EQ(space_.take_after(kMiB, &after), a);
  EXPECT_EQ(after, mark);
}

TEST_F(PoolSpaceTest, AMarkWithoutAnEventCantBeWaitedForByAStream) {
  const auto a = space_.take_free(4 * kMiB);
  auto mark = mark_in(stream(7));
  mark->event = nullptr;
  ASSERT_TRUE(space_.free(*a, mark));
  FreeMarkPtr after;
  EXPECT_FALSE(space_.take_after(kMiB, &after));
}

TEST_F(PoolSpaceTest, FreedTwiceIsRefused) {
  const auto a = space_.take_free(kMiB);
  EXPECT_TRUE(space_.free(*a, nullptr));
  EXPECT_FALSE(space_.free(*a, nullptr));
  EXPECT_FALSE(space_.free(*a + 512, nullptr));
}

TEST_F(PoolSpaceTest, AnInnerAddressFindsItsAllocation) {
  const auto a = space_.take_free(1000);
  const auto found = space_.find(*a + 999);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->start, *a);
  EXPECT_EQ(found->bytes, 1000u);
  EXPECT_FALSE(space_.find(*a + 1000));
}

TEST_F(PoolSpaceTest, TrimmingTakesUnusedSegmentsAndKeepsWhatIsAskedFor) {
  space_.add_segment(kBase + 8 * kMiB, 2 * kMiB);
  space_.add_segment(kBase + 16 * kMiB, 2 * kMiB);
  const auto a = space_.take_free(kMiB);  // in the first segment
  EXPECT_TRUE(space_.trim(7 * kMiB).empty());
  EXPECT_EQ(space_.trim(6 * kMiB).size(), 1u);
  EXPECT_EQ(space_.trim(0).size(), 1u);
  EXPECT_EQ(space_.reserved_bytes(), 4 * kMiB);
  EXPECT_EQ(space_.reserved_high(), 8 * kMiB);
  EXPECT_TRUE(space_.free(*a, nullptr));
  EXPECT_EQ(space_.trim(0), std::vector<std::uint64_t>{kBase});
}

TEST_F(PoolSpaceTest, WhatIsBeingFreedIsNotTrimmed) {
  const auto a = space_.take_free(kMiB);
  ASSERT_TRUE(space_.free(*a, mark_in(stream(7))));
  EXPECT_TRUE(space_.trim(0).empty());
  EXPECT_FALSE(space_.is_unused());
}

TEST_F(PoolSpaceTest, HighMarksAreResetToWhatIsNow) {
  const auto a = space_.take_free(kMiB);
  ASSERT_TRUE(space_.free(*a, nullptr));
  EXPECT_EQ(space_.used_high(), kMiB);
  space_.reset_used_high();
  EXPECT_EQ(space_.used_high(), 0u);
}

// ---- memory of another process: it says what lives where

TEST_F(PoolSpaceTest, APlaceIsTakenWhereNothingLives) {
  EXPECT_TRUE(space_.take_at(kBase + kMiB, 1000));
  EXPECT_EQ(space_.find(kBase + kMiB + 999)->bytes, 1000u);
  EXPECT_FALSE(space_.take_at(kBase + kMiB, 1000));
  EXPECT_FALSE(space_.take_at(kBase + kMiB + 512, 512)) << "inside of it";
  EXPECT_FALSE(space_.take_at(kBase + kMiB - 512, 1024)) << "into it";
  EXPECT_TRUE(space_.take_at(kBase + kMiB + 1024, 512)) << "right behind";
  EXPECT_FALSE(space_.take_at(kBase + 4 * kMiB, 512)) << "no segment";
  EXPECT_FALSE(space_.take_at(kBase + 3 * kMiB, 2 * kMiB)) << "longer than the segment";
  EXPECT_FALSE(space_.take_at(kBase - 512, 512));
}

TEST_F(PoolSpaceTest, APlaceIsTakenAgainWhileItIsBeingFreedHoweverItIsCut) {
  ASSERT_TRUE(space_.take_at(kBase, kMiB));
  ASSERT_TRUE(space_.take_at(kBase + kMiB, kMiB));
  const auto first = mark_in(stream(1)), second = mark_in(stream(2));
  ASSERT_TRUE(space_.free(kBase, first));
  ASSERT_TRUE(space_.free(kBase + kMiB, second));
  ASSERT_TRUE(space_.take_at(kBase + kMiB / 2, kMiB));
  EXPECT_EQ(space_.marks().size(), 2u) << "what is left over on both sides still waits";
  first->is_over = second->is_over = true;
  space_.settle();
  EXPECT_TRUE(space_.trim(0).empty());
  ASSERT_TRUE(space_.free(kBase + kMiB / 2, nullptr));
  EXPECT_EQ(space_.trim(0), std::vector<std::uint64_t>{kBase});
}

}  // namespace
}  // namespace plexrl::shim
