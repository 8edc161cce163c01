// Only what must travels: what leaves HBM without a copy, and that its bytes come back all the
// same.

#include "shim/chunk_hash.h"
#include "tests/unit/shim/pager_fixture.h"

namespace plexrl::shim {
namespace {

using testing::kMiB;

constexpr std::uint64_t kAll = ~std::uint64_t{0};

class PagerHashTest : public testing::PagerTest {
 protected:
  PagerHashTest() { pager_.set_hashing(Pager::Hashing::kAlways); }

  /// A range that has been out and is back, with a host copy of random bytes.
  Range* been_out(std::size_t bytes, std::vector<std::byte>* content) {
    Range* const range = allocate(bytes);
    load_all();
    open_gate();
    *content = random_bytes(bytes, 1);
    EXPECT_TRUE(driver_.write(range->start, *content));
    // Twice: the very first chunk is copied before there is a kernel that could hash it.
    for (int i = 0; i < 2; ++i) {
      pager_.evict(0, kAll);
      load_all();
      open_gate();
    }
    figures_ = {};
    return range;
  }
  void change(const Range* range, std::size_t at, std::vector<std::byte>* content) {
    (*content)[at] ^= std::byte{1};
    EXPECT_TRUE(driver_.write(range->start + at, {(*content)[at]}));
  }
  void expect_back(const Range* range, const std::vector<std::byte>& content) {
    load_all();
    expect_bytes(range, content);
  }
};

TEST_F(PagerHashTest, WhatWasOnlyReadDoesNotTravelOutAgain) {
  std::vector<std::byte> content;
  const Range* range = been_out(20 * kMiB, &content);
  const auto out = pager_.evict(0, kAll);
  EXPECT_EQ(out.unchanged_bytes, 20 * kMiB);
  EXPECT_EQ(out.moved_bytes, 0u);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  expect_back(range, content);
  EXPECT_EQ(slabs_.requests, 3);  // 8 MiB each: one copy of 20 MiB
}

TEST_F(PagerHashTest, OneChangedBitMovesItsChunkAndNoOther) {
  std::vector<std::byte> content;
  const Range* range = been_out(20 * kMiB, &content);
  for (const std::size_t at : {std::size_t{0}, 8 * kMiB - 1, 13 * kMiB + 4096}) {
    change(range, at, &content);
    const auto out = pager_.evict(0, kAll);
    EXPECT_EQ(out.moved_bytes, 4 * kMiB);
    EXPECT_EQ(out.unchanged_bytes, 16 * kMiB);
    expect_back(range, content);
    open_gate();
  }
}

TEST_F(PagerHashTest, WithoutAnOpenGateInBetweenNothingIsEvenHashed) {
  std::vector<std::byte> content;
  const Range* range = been_out(8 * kMiB, &content);
  pager_.evict(0, kAll);
  load_all();
  const int launches = driver_.calls("cuLaunchKernel");
  const auto out = pager_.evict(0, kAll);
  EXPECT_EQ(out.untouched_bytes, 8 * kMiB);
  EXPECT_EQ(driver_.calls("cuLaunchKernel"), launches);
  expect_back(range, content);
}

TEST_F(PagerHashTest, WhatIsSharedMayBeWrittenWithoutAGateOfOurs) {
  std::vector<std::byte> content;
  const Range* range = been_out(8 * kMiB, &content);
  table_.set_export(range->start, 1);
  pager_.evict(0, kAll);
  load_all();
  change(range, 5 * kMiB, &content);  // by another process; this one's gate is closed
  const auto out = pager_.evict(0, kAll);
  EXPECT_EQ(out.moved_bytes, 4 * kMiB);
  EXPECT_EQ(out.unchanged_bytes, 4 * kMiB);
  expect_back(range, content);
  // What is one word has a copy all the same: if this process dies the others need it.
  std::fill(content.begin(), content.end(), std::byte{1});
  ASSERT_TRUE(driver_.write(range->start, content));
  EXPECT_EQ(pager_.evict(0, kAll).moved_bytes, 8 * kMiB);
  expect_back(range, content);
}

TEST_F(PagerHashTest, AChunkOfOneRepeatedWordLeavesNothing) {
  std::vector<std::byte> content;
  const Range* range = been_out(8 * kMiB, &content);
  std::fill(content.begin(), content.begin() + 4 * kMiB, std::byte{0x5a});
  ASSERT_TRUE(driver_.write(range->start, content));
  const auto out = pager_.evict(0, kAll);
  EXPECT_EQ(out.repeated_bytes, 4 * kMiB);
  EXPECT_EQ(out.unchanged_bytes, 4 * kMiB);
  EXPECT_EQ(table_.totals(0).host, 4 * kMiB);
  EXPECT_EQ(store_.used_bytes(), 4 * kMiB);
  expect_back(range, content);
  EXPECT_EQ(figures_.repeated_bytes, 4 * kMiB);
  EXPECT_EQ(figures_.moved_bytes, 4 * kMiB);
  // And again, without a gate open in between, and then with other content.
  EXPECT_EQ(pager_.evict(0, kAll).untouched_bytes, 8 * kMiB);
  expect_back(range, content);
  open_gate();
  change(range, 17, &content);
  EXPECT_EQ(pager_.evict(0, kAll).moved_bytes, 4 * kMiB);
  expect_back(range, content);
}

TEST_F(PagerHashTest, WhatMayLeaveForNothingLeavesFirst) {
  std::vector<std::byte> content;
  been_out(20 * kMiB, &content);
  Range* const other = allocate(12 * kMiB);
  load_all();
  open_gate();
  ASSERT_TRUE(driver_.write(other->start, random_bytes(12 * kMiB, 2)));
  const auto out = pager_.evict(0, 20 * kMiB);
  EXPECT_EQ(out.unchanged_bytes, 20 * kMiB);
  EXPECT_EQ(out.moved_bytes, 0u);
}

TEST_F(PagerHashTest, CopiesAreGivenUpOldestFirst) {
  std::vector<std::byte> content;
  const Range* range = been_out(20 * kMiB, &content);
  const std::byte* const oldest = range->chunks[0].host.address;
  const HostSpan taken = table_.take_oldest_copy();
  EXPECT_EQ(taken.address, oldest);
  store_.put(taken);
  const auto out = pager_.evict(0, kAll);
  EXPECT_EQ(out.moved_bytes, 4 * kMiB);
  EXPECT_EQ(out.unchanged_bytes, 16 * kMiB);
  expect_back(range, content);
}

TEST_F(PagerHashTest, WhenTheHostIsFullCopiesMakeRoomForWhatHasToLeave) {
  pager_.set_hashing(Pager::Hashing::kNever);  // so that what has a copy does not leave first
  slabs_.left = 16 * kMiB;
  Range* const first = allocate(8 * kMiB);
  Range* const second = allocate(8 * kMiB);
  load_all();
  open_gate();
  const auto one = random_bytes(8 * kMiB, 1);
  const auto other = random_bytes(8 * kMiB, 2);
  ASSERT_TRUE(driver_.write(first->start, one));
  ASSERT_TRUE(driver_.write(second->start, other));
  pager_.evict(0, 8 * kMiB);
  load_all();  // the first range is back, and its copy kept
  Range* const third = allocate(8 * kMiB);
  load_all();
  open_gate();
  const auto more = random_bytes(8 * kMiB, 3);
  ASSERT_TRUE(driver_.write(third->start, more));
  slabs_.left = 0;
  EXPECT_FALSE(pager_.evict(0, 8 * kMiB).failed);  // the second one
  expect_back(first, one);
  expect_bytes(second, other);
  expect_bytes(third, more);
}

TEST_F(PagerHashTest, AKeptCopyIsReadOnly) {
  std::vector<std::byte> content;
  const Range* range = been_out(4 * kMiB, &content);
  const HostSpan& copy = range->chunks[0].host;
  ASSERT_TRUE(static_cast<bool>(copy));
  EXPECT_TRUE(copy.is_read_only);
  EXPECT_DEATH(*copy.address = std::byte{1}, "");  // by SIGSEGV, or by a sanitizer that tells of it
}

TEST_F(PagerHashTest, ChunksThatTheHasherCantTakeAreCopied) {
  driver_.fail_always("cuModuleLoadData", CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  std::vector<std::byte> content;
  const Range* range = been_out(8 * kMiB, &content);
  EXPECT_EQ(pager_.evict(0, kAll).moved_bytes, 8 * kMiB);
  expect_back(range, content);
}

TEST_F(PagerHashTest, LeavingAContextTakesTheHasherOff) {
  std::vector<std::byte> content;
  const Range* range = been_out(8 * kMiB, &content);
  EXPECT_FALSE(driver_.own_memory.empty());
  pager_.leave_context(context_).unlock();
  EXPECT_TRUE(driver_.own_memory.empty());
  EXPECT_TRUE(driver_.streams.empty());
  EXPECT_EQ(driver_.calls("cuModuleUnload"), 1);
  EXPECT_EQ(pager_.evict(0, kAll).freed_bytes, 8 * kMiB);
  expect_back(range, content);
}

struct Failure {
  const char* call;
  int nth;
};

class PagerHashFailureTest : public PagerHashTest, public ::testing::WithParamInterface<Failure> {};

TEST_P(PagerHashFailureTest, OneFailingCallLosesNothing) {
  std::vector<std::byte> content;
  const Range* range = been_out(20 * kMiB, &content);
  std::fill(content.begin() + 4 * kMiB, content.begin() + 8 * kMiB, std::byte{7});
  ASSERT_TRUE(driver_.write(range->start, content));
  change(range, 13 * kMiB, &content);
  driver_.fail(GetParam().call, GetParam().nth, CUDA_ERROR_INVALID_VALUE);
  pager_.evict(0, kAll);
  EXPECT_EQ(table_.totals(0).moving, 0u);
  expect_back(range, content);
  open_gate();
  change(range, 1, &content);
  change(range, 9 * kMiB, &content);
  driver_.fail(GetParam().call, GetParam().nth, CUDA_ERROR_INVALID_VALUE);
  pager_.evict(0, kAll);
  pager_.evict(0, kAll);
  expect_back(range, content);
  EXPECT_EQ(driver_.used_bytes(), range->mapped_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    EveryStep, PagerHashFailureTest,
    ::testing::Values(Failure{"cuMemsetD32Async", 1}, Failure{"cuLaunchKernel", 1},
                      Failure{"cuLaunchKernel", 5}, Failure{"cuMemcpyDtoHAsync_v2", 1},
                      Failure{"cuMemcpyDtoHAsync_v2", 2}, Failure{"cuMemcpyDtoHAsync_v2", 4},
                      Failure{"cuEventSynchronize", 1}, Failure{"cuEventSynchronize", 2},
                      Failure{"cuEventSynchronize", 5}, Failure{"cuEventRecord", 1},
                      Failure{"cuEventRecord", 3}, Failure{"cuMemUnmap", 1},
                      Failure{"cuMemUnmap", 2}, Failure{"cuMemUnmap", 4},
                      Failure{"cuMemcpyHtoDAsync_v2", 2}, Failure{"cuMemCreate", 2}),
    [](const auto& info) { return std::string(info.param.call) + std::to_string(info.param.nth); });

TEST(ChunkHash, TheNativeBlockIsTheSumOfTheDefinition) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> words(chunk_hash::kBlockBytes / 4);
  std::vector<std::uint32_t> key(chunk_hash::kKeyBytes / 4);
  for (auto& word : words) word = random();
  for (auto& word : key) word = random();
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{40}, std::size_t{2048}, chunk_hash::kBlockBytes}) {
    std::uint64_t found[chunk_hash::kStreams];
    EXPECT_TRUE(chunk_hash::hash_block(reinterpret_cast<const std::byte*>(words.data()), bytes,
                                       reinterpret_cast<const std::byte*>(key.data()), words[0],
                                       found));
    for (std::size_t s = 0; s < chunk_hash::kStreams; ++s) {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < bytes / 4; i += 2) {
        const std::uint32_t even = words[i] + key[i + 2 * s];
        const std::uint32_t odd = words[i + 1] + key[i + 1 + 2 * s];
        sum += std::uint64_t{even} * odd;
      }
      EXPECT_EQ(found[s], sum);
    }
  }
}

}  // namespace
}  // namespace plexrl::shim
