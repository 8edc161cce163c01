// Chunks that find no host memory and go to disk.
#include "tests/unit/shim/fake_disk.h"
#include "tests/unit/shim/pager_fixture.h"

namespace plexrl::shim::testing {
namespace {

/// A pager with a disk; chunks of 4 MiB, 8 MiB of host memory.
class PagerDiskTest : public PagerTest {
 protected:
  PagerDiskTest() : spill_(&disk_), with_disk_(table_, store_, contexts_, &spill_) {
    spill_.set_piece_bytes(4 * kMiB);
    with_disk_.set_hashing(Pager::Hashing::kNever);
    slabs_.left = 8 * kMiB;
  }
  ~PagerDiskTest() override { with_disk_.leave_context(context_).unlock(); }

  Pager::Progress load_step() { return with_disk_.load_step(0, &figures_); }
  void load_all() {
    Pager::Progress progress = Pager::Progress::kMore;
    for (int i = 0; i < 1000 && progress != Pager::Progress::kDone; ++i) progress = load_step();
    ASSERT_EQ(progress, Pager::Progress::kDone);
  }
  /// A range in HBM with bytes of its own.
  Range* filled(std::size_t bytes) {
    Range* const range = allocate(bytes);
    load_all();
    expected_ = random_bytes(bytes, 7);
    driver_.write(range->start, expected_);
    open_gate();
    return range;
  }

  FakeDisk disk_;
  SpillStore spill_;
  Pager with_disk_;
  std::vector<std::byte> expected_;
};

TEST_F(PagerDiskTest, WhatFindsNoHostMemoryGoesToDiskAndComesBack) {
  Range* const range = filled(32 * kMiB);
  const auto out = with_disk_.evict(0, ~std::uint64_t{0});
  EXPECT_FALSE(out.failed);
  EXPECT_EQ(out.freed_bytes, 32 * kMiB);
  EXPECT_EQ(out.moved_bytes, 32 * kMiB);
  EXPECT_EQ(out.disk_bytes, 24 * kMiB);
  EXPECT_EQ(table_.totals(0).host, 8 * kMiB);
  EXPECT_EQ(table_.totals(0).disk, 24 * kMiB);
  EXPECT_EQ(disk_.most_under_way, SpillStore::kSlots) << "copying and writing at the same time";
  figures_ = {};
  load_all();
  EXPECT_EQ(figures_.moved_bytes, 32 * kMiB);
  EXPECT_EQ(figures_.disk_bytes, 24 * kMiB);
  expect_bytes(range, expected_);
  EXPECT_TRUE(disk_.files.empty()) << "what is loaded leaves nothing there";
}

TEST_F(PagerDiskTest, NoGateOpensWhileAChunkIsOnDisk) {
  filled(16 * kMiB);
  with_disk_.evict(0, ~std::uint64_t{0});
  EXPECT_FALSE(table_.when_complete([] {}));
}

TEST_F(PagerDiskTest, WhatCameFromDiskAndWasNotUsedKeepsItsBytes) {
  Range* const range = filled(16 * kMiB);
  for (int i = 0; i < 3; ++i) {
    with_disk_.evict(0, ~std::uint64_t{0});
    load_all();  // no gate opens: its content is known, but there is no other copy
  }
  expect_bytes(range, expected_);
}

TEST_F(PagerDiskTest, AChunkLargerThanASlotGoesInPieces) {
  spill_.set_piece_bytes(2 * kMiB);
  table_.set_geometry(12 * kMiB, 2 * kMiB);
  slabs_.left = 0;
  Range* const range = filled(22 * kMiB);
  EXPECT_FALSE(with_disk_.evict(0, ~std::uint64_t{0}).failed);
  EXPECT_EQ(disk_.writes, 11);
  load_all();
  expect_bytes(range, expected_);
}

TEST_F(PagerDiskTest, AFullDiskLeavesTheChunkInHbm) {
  Range* const range = filled(32 * kMiB);
  disk_.write_outcome = wire::kDiskFull;
  const auto out = with_disk_.evict(0, ~std::uint64_t{0});
  EXPECT_TRUE(out.failed);
  EXPECT_EQ(out.freed_bytes, 8 * kMiB) << "what the host takes leaves";
  EXPECT_GT(out.moved_bytes, out.freed_bytes) << "what was copied for nothing went over the link";
  EXPECT_EQ(out.disk_bytes, 0u);
  EXPECT_EQ(table_.totals(0).resident, 24 * kMiB);
  disk_.write_outcome = wire::kDiskDone;
  EXPECT_FALSE(with_disk_.evict(0, ~std::uint64_t{0}).failed) << "later there is room";
  load_all();
  expect_bytes(range, expected_);
}

TEST_F(PagerDiskTest, ADamagedChunkIsLostAndNoOther) {
  Range* const range = filled(32 * kMiB);
  with_disk_.evict(0, ~std::uint64_t{0});
  const auto damaged = disk_.files.begin();
  const auto lost = std::find_if(range->chunks.begin(), range->chunks.end(), [&](const Chunk& one) {
    return one.disk && one.disk.offset == damaged->first;
  });
  ASSERT_NE(lost, range->chunks.end());
  ++damaged->second.first;
  load_all();
  EXPECT_EQ(table_.totals(0).lost, 4 * kMiB);
  EXPECT_EQ(table_.totals(0).resident, 28 * kMiB);
  EXPECT_EQ(lost->state, ChunkState::kLost);
  std::vector<std::byte> found(4 * kMiB);
  EXPECT_FALSE(driver_.read(range->start + lost->offset, &found)) << "nothing is mapped there";
  for (const Chunk& chunk : range->chunks) {
    if (&chunk == &*lost) continue;
    ASSERT_TRUE(driver_.read(range->start + chunk.offset, &found));
    EXPECT_EQ(std::memcmp(found.data(), &expected_[chunk.offset], found.size()), 0);
  }
  EXPECT_TRUE(table_.when_complete([] {})) << "the job learns it from its own calls";
}

TEST_F(PagerDiskTest, ADiskThatFailsOnceIsTriedAgain) {
  Range* const range = filled(16 * kMiB);
  with_disk_.evict(0, ~std::uint64_t{0});
  disk_.reads_that_fail = 1;
  load_all();
  EXPECT_EQ(table_.totals(0).lost, 0u);
  expect_bytes(range, expected_);
}

TEST_F(PagerDiskTest, AManagerThatDiesWhileBytesLeaveLosesNone) {
  Range* const range = filled(32 * kMiB);
  for (int after = 1; after <= 6; ++after) {
    disk_.dies_after = after;
    with_disk_.evict(0, ~std::uint64_t{0});
    disk_.is_gone = false;
    disk_.dies_after = 0;
    load_all();
    expect_bytes(range, expected_);
    open_gate();
  }
  EXPECT_GT(disk_.slabs, 1) << "a slab that somebody may still write to is not used again";
}

TEST_F(PagerDiskTest, AManagerThatDiesWhileBytesComeBackLosesNone) {
  Range* const range = filled(32 * kMiB);
  for (int after = 1; after <= 6; ++after) {
    ASSERT_FALSE(with_disk_.evict(0, ~std::uint64_t{0}).failed);
    disk_.dies_after = after;
    Pager::Progress progress = Pager::Progress::kMore;
    while (progress == Pager::Progress::kMore) progress = load_step();
    EXPECT_EQ(progress, Pager::Progress::kNoMemory) << "to be tried again";
    disk_.is_gone = false;
    disk_.dies_after = 0;
    load_all();
    expect_bytes(range, expected_);
    open_gate();
  }
}

TEST_F(PagerDiskTest, WithoutAManagerForGoodWhatIsOnDiskIsLostAndNothingWaits) {
  filled(32 * kMiB);
  with_disk_.evict(0, ~std::uint64_t{0});
  with_disk_.leave_disk();
  load_all();
  EXPECT_EQ(table_.totals(0).lost, 24 * kMiB);
  EXPECT_EQ(table_.totals(0).resident, 8 * kMiB);
  EXPECT_TRUE(table_.when_complete([] {}));
}

TEST_F(PagerDiskTest, SharedMemoryStaysOffTheDisk) {
  Range* const range = filled(16 * kMiB);
  table_.set_export(range->start, 5);
  const auto out = with_disk_.evict(0, ~std::uint64_t{0});
  EXPECT_TRUE(out.failed);
  EXPECT_EQ(out.disk_bytes, 0u);
  EXPECT_TRUE(disk_.files.empty());
}

TEST_F(PagerDiskTest, WhereTheHostIsFullOtherMemoryMakesRoomForWhatIsShared) {
  Range* const range = filled(16 * kMiB);
  with_disk_.evict(0, ~std::uint64_t{0});
  Range* const shared = allocate(8 * kMiB);
  load_all();
  open_gate();
  const auto bytes = random_bytes(8 * kMiB, 3);
  driver_.write(shared->start, bytes);
  table_.set_export(shared->start, 1);
  EXPECT_FALSE(with_disk_.evict(0, ~std::uint64_t{0}).failed);
  EXPECT_EQ(table_.totals(0).resident, 0u);
  EXPECT_EQ(table_.totals(0).disk, 16 * kMiB);
  EXPECT_EQ(shared->chunks[1].state, ChunkState::kHost);
  load_all();
  expect_bytes(range, expected_);
  expect_bytes(shared, bytes);
  EXPECT_TRUE(disk_.files.empty());
}

TEST_F(PagerDiskTest, AFreedRangeGivesItsPlacesBack) {
  Range* const range = filled(32 * kMiB);
  with_disk_.evict(0, ~std::uint64_t{0});
  EXPECT_FALSE(disk_.files.empty());
  std::size_t freed = 0;
  with_disk_.release(table_.remove(range->start, &freed));
  EXPECT_TRUE(disk_.files.empty());
  EXPECT_EQ(table_.totals(0).disk, 0u);
}

TEST_F(PagerDiskTest, PlacesThatWereFreedWithoutAManagerAreToldLater) {
  Range* const range = filled(32 * kMiB);
  with_disk_.evict(0, ~std::uint64_t{0});
  disk_.is_gone = true;
  std::size_t freed = 0;
  with_disk_.release(table_.remove(range->start, &freed));
  EXPECT_FALSE(disk_.files.empty());
  disk_.is_gone = false;
  filled(32 * kMiB);
  with_disk_.evict(0, ~std::uint64_t{0});
  std::uint64_t end = 0;
  for (const auto& [offset, file] : disk_.files) end = std::max(end, offset + file.second.size());
  EXPECT_LE(end, 32 * kMiB) << "old places are used again";
}

TEST_F(PagerDiskTest, WithoutADiskTierTheChunkStays) {
  disk_.on = false;
  filled(32 * kMiB);
  EXPECT_TRUE(with_disk_.evict(0, ~std::uint64_t{0}).failed);
  EXPECT_EQ(disk_.slabs, 0);
}

TEST_F(PagerDiskTest, ACallOfTheDriverThatFailsLosesNothing) {
  Range* const range = filled(32 * kMiB);
  for (const char* const call :
       {"cuMemcpyDtoHAsync_v2", "cuMemUnmap", "cuMemHostRegister_v2", "cuStreamSynchronize"}) {
    for (int nth = 1; nth <= 8; ++nth) {
      driver_.fail(call, nth, CUDA_ERROR_UNKNOWN);
      with_disk_.evict(0, ~std::uint64_t{0});
      load_all();
      expect_bytes(range, expected_);
      open_gate();
    }
  }
}

}  // namespace
}  // namespace plexrl::shim::testing
