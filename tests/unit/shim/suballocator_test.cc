#include "shim/suballocator.h"

#include <gtest/gtest.h>

#include <random>

namespace plexrl::shim {
namespace {

constexpr std::uint64_t kBlock = std::uint64_t{1} << 40;

TEST(Suballocator, NeedsABlockFirst) {
  Suballocator small;
  EXPECT_FALSE(small.allocate(1));
}

TEST(Suballocator, EveryAnswerIsAlignedAsTheDriverAligns) {
  Suballocator small;
  small.add_block(kBlock);
  for (const std::size_t bytes : {1, 3, 511, 512, 513, 100'000}) {
    const auto allocation = small.allocate(bytes);
    ASSERT_TRUE(allocation);
    EXPECT_EQ(allocation->address % Suballocator::kAlignment, 0u);
    EXPECT_EQ(allocation->bytes, bytes);
  }
}

TEST(Suballocator, FindsByAnyAddressInsideAndNoneInThePadding) {
  Suballocator small;
  small.add_block(kBlock);
  const auto allocation = small.allocate(100);
  EXPECT_EQ(small.find(allocation->address + 99)->address, allocation->address);
  EXPECT_FALSE(small.find(allocation->address + 100));
}

TEST(Suballocator, FreeSaysWhenNothingBeganThere) {
  Suballocator small;
  small.add_block(kBlock);
  const auto allocation = small.allocate(100);
  bool found = true;
  EXPECT_FALSE(small.free(allocation->address + 1, &found));
  EXPECT_FALSE(found);
}

TEST(Suballocator, GivesAnEmptyBlockAway) {
  Suballocator small;
  small.add_block(kBlock);
  const auto first = small.allocate(100);
  const auto second = small.allocate(100);
  bool found = false;
  EXPECT_FALSE(small.free(first->address, &found));
  EXPECT_EQ(small.free(second->address, &found), kBlock);
  EXPECT_EQ(small.block_count(), 0u);
}

TEST(Suballocator, ABlockHoldsAsMuchAsItsSize) {
  Suballocator small;
  small.add_block(kBlock);
  for (std::size_t i = 0; i < Suballocator::kBlockBytes / Suballocator::kAlignment; ++i) {
    ASSERT_TRUE(small.allocate(1));
  }
  EXPECT_FALSE(small.allocate(1));
}

TEST(Suballocator, RandomRequestsNeverOverlap) {
  std::mt19937_64 random(7);
  Suballocator small;
  std::uint64_t next_block = kBlock;
  std::map<std::uint64_t, std::size_t> model;
  for (int step = 0; step < 20'000; ++step) {
    if (!model.empty() && random() % 5 < 2) {
      auto it = model.begin();
      std::advance(it, static_cast<long>(random() % model.size()));
      bool found = false;
      small.free(it->first, &found);
      ASSERT_TRUE(found);
      model.erase(it);
      continue;
    }
    const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? 900'000 : 4'000);
    auto allocation = small.allocate(bytes);
    if (!allocation) {
      small.add_block(next_block);
      next_block += Suballocator::kBlockBytes;
      allocation = small.allocate(bytes);
    }
    ASSERT_TRUE(allocation);
    const auto after = model.lower_bound(allocation->address);
    if (after != model.end()) {
      ASSERT_LE(allocation->address + bytes, after->first);
    }
    if (after != model.begin()) {
      const auto before = std::prev(after);
      ASSERT_LE(before->first + before->second, allocation->address);
    }
    ASSERT_GE(allocation->address, allocation->block);
    ASSERT_LE(allocation->address + bytes, allocation->block + Suballocator::kBlockBytes);
    model.emplace(allocation->address, bytes);
  }
  for (const auto& [address, bytes] : model) {
    bool found = false;
    small.free(address, &found);
    ASSERT_TRUE(found);
  }
  EXPECT_EQ(small.block_count(), 0u);
}

}  // namespace
}  // namespace plexrl::shim
