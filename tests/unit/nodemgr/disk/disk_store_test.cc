#include "nodemgr/disk/disk_store.h"

#include <sys/stat.h>

#include <cerrno>

#include "tests/unit/nodemgr/disk/disk_fixture.h"
#include "tests/unit/nodemgr/disk/faulty_io.h"

namespace plexrl::nodemgr::disk {
namespace {

using Outcome = DiskStore::Outcome;

// ---- what is written comes back, with io_uring and without

class EitherIo : public DiskTest, public ::testing::WithParamInterface<bool> {
 protected:
  EitherIo() {
    DiskStore::Options options;
    if (!GetParam()) options.make_io = [] { return std::unique_ptr<FileIo>(); };
    open(std::move(options));
  }
};
INSTANTIATE_TEST_SUITE_P(DiskStore, EitherIo, ::testing::Values(true, false),
                         [](const auto& param) { return param.param ? "Ring" : "Plain"; });

TEST_P(EitherIo, AChunkComesBackAsItWas) {
  const ScopedFd from = memory(16 * kMiB, 1);
  const ScopedFd to = memory(16 * kMiB, 2);
  // Neither a whole number of pieces nor at the beginning of anything.
  const DiskStore::Place place{2 * kMiB, 5 * kMiB + 4096, 12 * kMiB + 8192};
  const auto written = write(from, place);
  ASSERT_EQ(written.outcome, Outcome::kDone) << written.text;
  const std::string before = bytes_of(to, 0, place.memory_offset);
  ASSERT_EQ(read(to, place, written.seal).outcome, Outcome::kDone);
  EXPECT_EQ(bytes_of(to, place.memory_offset, place.bytes),
            bytes_of(from, place.memory_offset, place.bytes));
  EXPECT_EQ(bytes_of(to, 0, place.memory_offset), before);
}

TEST_P(EitherIo, ManyChunksOfSeveralOwnersAtOnceKeepApart) {
  constexpr std::uint64_t kChunk = 3 * kMiB;
  constexpr std::uint64_t kCount = 12;
  const ScopedFd from = memory(kCount * kChunk, 3);
  const ScopedFd to = memory(kCount * kChunk, 4);
  // Owners have the same places, each in its own file.
  const auto place = [](std::uint64_t i) {
    return DiskStore::Place{i * kChunk, kChunk, i / 3 * kChunk};
  };
  for (std::uint64_t i = 0; i < kCount; ++i) store_->write(1 + i % 3, i, same(from), place(i));
  auto written = results(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(written.at(i).outcome, Outcome::kDone) << written.at(i).text;
    store_->read(1 + i % 3, i, same(to), place(i), written.at(i).seal);
  }
  for (auto& [request, result] : results(kCount)) {
    EXPECT_EQ(result.outcome, Outcome::kDone) << result.text;
  }
  EXPECT_EQ(bytes_of(from, 0, kCount * kChunk), bytes_of(to, 0, kCount * kChunk));
}

TEST_P(EitherIo, APlaceThatIsDiscardedAndWrittenAgainHasTheNewBytes) {
  const ScopedFd from = memory(32 * kMiB, 5);
  const ScopedFd to = memory(4 * kMiB, 6);
  for (std::uint64_t i = 0; i < 8; ++i) {
    store_->write(kOwner, i, same(from), {i * 4 * kMiB, 4 * kMiB, 0});
    if (i != 7) store_->discard(kOwner, 0, 4 * kMiB);
  }
  auto written = results(8);
  ASSERT_EQ(written.at(7).outcome, Outcome::kDone) << written.at(7).text;
  ASSERT_EQ(read(to, {0, 4 * kMiB, 0}, written.at(7).seal).outcome, Outcome::kDone);
  EXPECT_EQ(bytes_of(to, 0, 4 * kMiB), bytes_of(from, 28 * kMiB, 4 * kMiB));
}

// ---- what is on the disk

TEST_F(DiskTest, NothingReadableIsOnTheDisk) {
  open({});
  const ScopedFd from(::memfd_create("chunk", MFD_CLOEXEC));
  std::string text;
  while (text.size() < kMiB) text += "what a job computes, again and again. ";
  text.resize(kMiB);
  ASSERT_EQ(::pwrite(from.get(), text.data(), kMiB, 0), static_cast<ssize_t>(kMiB));
  auto file = SpillFile::create(folder_);
  ASSERT_TRUE(file.ok());
  auto mover = ChunkMover::make(make_plain_io(), 2, 64 << 10);
  Seal seal;
  ASSERT_TRUE(mover->write(**file, {from.get(), 0, 0, kMiB}, &seal).ok());
  (*file)->leave_direct();
  std::string found(kMiB, '\0');
  ASSERT_EQ(::pread((*file)->fd(), found.data(), kMiB, 0), static_cast<ssize_t>(kMiB));
  EXPECT_EQ(found.find("a job"), std::string::npos);
}

TEST_F(DiskTest, WithoutTmpfilesAFileIsUnlinkedAtOnce) {
  auto file = SpillFile::create(folder_, false);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const ScopedFd from = memory(kMiB, 1);
  const ScopedFd to = memory(kMiB, 2);
  auto mover = ChunkMover::make(make_plain_io(), 2, 64 << 10);
  Seal seal;
  ASSERT_TRUE(mover->write(**file, {from.get(), 0, 0, kMiB}, &seal).ok());
  ASSERT_TRUE(mover->read(**file, {to.get(), 0, 0, kMiB}, seal).ok());
  EXPECT_EQ(bytes_of(to, 0, kMiB), bytes_of(from, 0, kMiB));
}

TEST_F(DiskTest, OneFlippedBitIsNoticed) {
  bool flips = true;
  DiskStore::Options options;
  options.make_io = [&] {
    return std::make_unique<FaultyIo>(make_plain_io(), [&](Attempt* attempt, int) {
      if (flips && attempt->way == Attempt::Way::kWrite && attempt->offset == 2 * kMiB) {
        attempt->data[4711] ^= std::byte{16};
      }
      return false;
    });
  };
  open(std::move(options));
  const ScopedFd from = memory(4 * kMiB, 1);
  const ScopedFd to = memory(4 * kMiB, 2);
  const auto written = write(from, {0, 4 * kMiB, 0});
  ASSERT_EQ(written.outcome, Outcome::kDone);
  EXPECT_EQ(read(to, {0, 4 * kMiB, 0}, written.seal).outcome, Outcome::kDamaged);
  flips = false;
  const auto again = write(from, {0, 4 * kMiB, 0});
  EXPECT_EQ(read(to, {0, 4 * kMiB, 0}, again.seal).outcome, Outcome::kDone);
}

TEST_F(DiskTest, BytesOfAnotherPlaceOrAnEarlierWriteDoNotPass) {
  open({});
  const ScopedFd from = memory(8 * kMiB, 1);
  const ScopedFd to = memory(8 * kMiB, 2);
  const auto first = write(from, {0, kMiB, 0});
  const auto second = write(from, {kMiB, kMiB, kMiB});
  const auto newer = write(from, {2 * kMiB, kMiB, 0});
  EXPECT_EQ(read(to, {0, kMiB, 0}, first.seal).outcome, Outcome::kDamaged);
  EXPECT_EQ(read(to, {0, kMiB, kMiB}, newer.seal).outcome, Outcome::kDamaged);
  EXPECT_EQ(read(to, {0, kMiB, kMiB}, second.seal).outcome, Outcome::kDone);
  EXPECT_EQ(read(to, {0, kMiB, 0}, newer.seal).outcome, Outcome::kDone);
}

// ---- room

TEST_F(DiskTest, BeyondTheLimitNothingIsWrittenAndWhatIsThereStays) {
  DiskStore::Options options;
  options.limit_bytes = 9 * kMiB;
  open(std::move(options));
  const ScopedFd from = memory(12 * kMiB, 1);
  const ScopedFd to = memory(12 * kMiB, 2);
  const auto first = write(from, {0, 4 * kMiB, 0});
  const auto second = write(from, {4 * kMiB, 4 * kMiB, 4 * kMiB});
  const auto third = write(from, {8 * kMiB, 4 * kMiB, 8 * kMiB});
  EXPECT_EQ(third.outcome, Outcome::kFull);
  EXPECT_THAT(third.text, ::testing::HasSubstr("disk budget"));
  EXPECT_EQ(read(to, {4 * kMiB, 4 * kMiB, 4 * kMiB}, second.seal).outcome, Outcome::kDone);
  store_->discard(kOwner, 0, 4 * kMiB);
  EXPECT_EQ(store_->bytes_in_use(), 4 * kMiB);
  EXPECT_EQ(read(to, {0, 4 * kMiB, 0}, first.seal).outcome, Outcome::kDamaged);
  EXPECT_EQ(write(from, {8 * kMiB, 4 * kMiB, 8 * kMiB}).outcome, Outcome::kDone);
}

TEST_F(DiskTest, WhatIsOnItsWayCountsAgainstTheLimit) {
  DiskStore::Options options;
  options.limit_bytes = 9 * kMiB;
  open(std::move(options));
  const ScopedFd from = memory(16 * kMiB, 1);
  for (std::uint64_t i = 0; i < 4; ++i) {
    store_->write(kOwner, i, same(from), {i * 4 * kMiB, 4 * kMiB, i * 4 * kMiB});
  }
  int done = 0;
  for (auto& [request, result] : results(4)) done += result.outcome == Outcome::kDone ? 1 : 0;
  EXPECT_EQ(done, 2);
}

TEST_F(DiskTest, AnOwnerThatEndsLeavesNothing) {
  open({});
  const ScopedFd from = memory(8 * kMiB, 1);
  ASSERT_EQ(write(from, {0, 8 * kMiB, 0}).outcome, Outcome::kDone);
  EXPECT_GE(store_->bytes_of(kOwner), 8 * kMiB);
  store_->drop_owner(kOwner);
  EXPECT_EQ(store_->bytes_in_use(), 0u);
  store_->read(kOwner, 3, same(from), {0, 4096, 0}, {});
  EXPECT_EQ(results(1).at(3).outcome, Outcome::kFailed);
}

// ---- failures at each step

struct Failing {
  const char* name;
  Attempt::Way way;
  int error;
  Outcome expected;
};

class EachStep : public DiskTest, public ::testing::WithParamInterface<Failing> {};
INSTANTIATE_TEST_SUITE_P(
    DiskStore, EachStep,
    ::testing::Values(Failing{"WriteEio", Attempt::Way::kWrite, EIO, Outcome::kFailed},
                      Failing{"WriteEnospc", Attempt::Way::kWrite, ENOSPC, Outcome::kFull},
                      Failing{"WriteEdquot", Attempt::Way::kWrite, EDQUOT, Outcome::kFull},
                      Failing{"ReadEio", Attempt::Way::kRead, EIO, Outcome::kFailed}),
    [](const auto& param) { return param.param.name; });

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// Every piece of the chunk fails in its turn; after each failure the other chunk is whole, nothing
/// of the failed one is left, and the next try succeeds.
TEST_P(EachStep, FailsThatChunkOnlyAndLeaksNothing) {
  std::atomic<int> failing{-1};
  std::atomic<int> seen{0};
  DiskStore::Options options;
  options.make_io = [&] {
    return std::make_unique<FaultyIo>(
        make_ring_io(DiskStore::kDepth) != nullptr ? make_ring_io(DiskStore::kDepth)
                                                   : make_plain_io(),
        [&](Attempt* attempt, int) {
          const bool fails =
              attempt->way == GetParam().way && attempt->offset >= 8 * kMiB && seen++ == failing;
          if (!fails) return false;
          attempt->result = -GetParam().error;
          attempt->has_ended = true;
          return true;
        });
  };
  open(std::move(options));
  const ScopedFd from = memory(8 * kMiB, 1);
  const ScopedFd to = memory(8 * kMiB, 2);
  const DiskStore::Place other{0, 4 * kMiB, 0};
  const DiskStore::Place place{4 * kMiB, 4 * kMiB, 8 * kMiB};
  const auto kept = write(from, other);
  const std::uint64_t bytes_before = store_->bytes_in_use();
  const std::size_t descriptors_before = open_descriptors();
  for (int piece = 0; piece < 4; ++piece) {
    seen = 0;
    failing = piece;
    auto written = write(from, place);
    if (GetParam().way == Attempt::Way::kWrite) {
      EXPECT_EQ(written.outcome, GetParam().expected) << written.text;
      EXPECT_EQ(store_->bytes_in_use(), bytes_before);
      failing = -1;
      written = write(from, place);
    }
    ASSERT_EQ(written.outcome, Outcome::kDone) << written.text;
    if (GetParam().way == Attempt::Way::kRead) {
      const auto failed = read(to, place, written.seal);
      EXPECT_EQ(failed.outcome, GetParam().expected) << failed.text;
      failing = -1;
    }
    EXPECT_EQ(read(to, place, written.seal).outcome, Outcome::kDone);
    EXPECT_EQ(read(to, other, kept.seal).outcome, Outcome::kDone);
    EXPECT_EQ(bytes_of(to, 0, 8 * kMiB), bytes_of(from, 0, 8 * kMiB));
    store_->discard(kOwner, place.file_offset, place.bytes);
    ASSERT_EQ(read(to, other, kept.seal).outcome, Outcome::kDone);
  }
  EXPECT_EQ(open_descriptors(), descriptors_before);
}

TEST_F(DiskTest, ShortMovesGoOnWhereTheyStopped) {
  DiskStore::Options options;
  options.make_io = [] {
    return std::make_unique<FaultyIo>(make_plain_io(), [](Attempt* attempt, int index) {
      // Whole units and parts of one; never nothing.
      const std::size_t most = index % 3 == 0 ? 4096 * 5 : 4096 * 7 + 512;
      attempt->bytes = std::min(attempt->bytes, most);
      return false;
    });
  };
  open(std::move(options));
  const ScopedFd from = memory(4 * kMiB, 1);
  const ScopedFd to = memory(4 * kMiB, 2);
  const auto written = write(from, {0, 4 * kMiB, 0});
  ASSERT_EQ(written.outcome, Outcome::kDone) << written.text;
  ASSERT_EQ(read(to, {0, 4 * kMiB, 0}, written.seal).outcome, Outcome::kDone);
  EXPECT_EQ(bytes_of(to, 0, 4 * kMiB), bytes_of(from, 0, 4 * kMiB));
}

TEST_F(DiskTest, WhereDirectAccessIsRefusedBytesGoThroughThePageCache) {
  DiskStore::Options options;
  options.make_io = [] {
    return std::make_unique<FaultyIo>(make_plain_io(), [](Attempt* attempt, int) {
      if ((::fcntl(attempt->fd, F_GETFL) & O_DIRECT) == 0) return false;
      attempt->result = -EINVAL;
      attempt->has_ended = true;
      return true;
    });
  };
  open(std::move(options));
  const ScopedFd from = memory(4 * kMiB, 1);
  const ScopedFd to = memory(4 * kMiB, 2);
  const auto written = write(from, {0, 4 * kMiB, 0});
  ASSERT_EQ(written.outcome, Outcome::kDone) << written.text;
  EXPECT_FALSE(store_->is_direct());
  ASSERT_EQ(read(to, {0, 4 * kMiB, 0}, written.seal).outcome, Outcome::kDone);
  EXPECT_EQ(bytes_of(to, 0, 4 * kMiB), bytes_of(from, 0, 4 * kMiB));
}

TEST_F(DiskTest, AMemfdThatIsTooShortFailsTheMove) {
  open({});
  const ScopedFd from = memory(4 * kMiB, 1);
  const auto beyond = write(from, {2 * kMiB, 4 * kMiB, 0});
  EXPECT_EQ(beyond.outcome, Outcome::kFailed);
  EXPECT_EQ(store_->bytes_in_use(), 0u);
}

TEST_F(DiskTest, AFolderThatCannotBeHadIsAnErrorAtOnce) {
  DiskStore::Options options;
  options.folder = folder_ + "/none";
  const auto opened = DiskStore::open(std::move(options));
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(std::string(opened.status().message()), ::testing::HasSubstr(folder_ + "/none"));
}

// ---- files that outlive their manager

class Outlived : public DiskTest {
 protected:
  /// Two chunks of 4 MiB are written, the first is discarded; then the manager dies.
  Outlived() {
    open({});
    const ScopedFd from = memory(8 * kMiB, 1);
    store_->write(kOwner, 1, same(from), {0, 4 * kMiB, 0});
    store_->write(kOwner, 2, same(from), {4 * kMiB, 4 * kMiB, 4 * kMiB});
    seal_ = results(2).at(2).seal;
    store_->discard(kOwner, 0, 4 * kMiB);
    EXPECT_NE(read(from, {0, 4 * kMiB, 0}, {}).outcome, Outcome::kDone);  // after that
    expected_ = bytes_of(from, 4 * kMiB, 4 * kMiB);
    const auto file = store_->file(kOwner);
    EXPECT_TRUE(file.ok());
    auto name = (*file)->name();
    EXPECT_TRUE(name.ok());
    name_ = *std::move(name);
    inode_ = (*file)->inode();
    const auto key = (*file)->key().bytes();
    key_.assign(key.begin(), key.end());
    store_.reset();
  }
  auto reopen(int name, std::uint64_t inode) {
    return SpillFile::reopen(name, inode, folder_, key_);
  }

  ScopedFd name_;
  std::uint64_t inode_ = 0;
  std::vector<std::uint8_t> key_;
  Seal seal_;
  std::string expected_;
};

TEST_F(Outlived, TheNextOneReadsThemAndKnowsWhatIsUsed) {
  DiskStore::Options options;
  options.generation = 2;
  open(std::move(options));
  auto file = reopen(name_.get(), inode_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  store_->adopt(kOwner, *std::move(file));
  EXPECT_EQ(store_->bytes_of(kOwner), 4 * kMiB);
  const ScopedFd to = memory(4 * kMiB, 2);
  ASSERT_EQ(read(to, {0, 4 * kMiB, 4 * kMiB}, seal_).outcome, Outcome::kDone);
  EXPECT_EQ(bytes_of(to, 0, 4 * kMiB), expected_);
  // Another chunk in the place that was given back.
  const auto written = write(to, {0, 4 * kMiB, 0});
  ASSERT_EQ(written.outcome, Outcome::kDone);
  EXPECT_NE(written.seal.nonce, seal_.nonce);
  EXPECT_EQ(store_->bytes_of(kOwner), 8 * kMiB);
}

TEST_F(Outlived, WhoHoldsTheNameCanNeitherReadNorWrite) {
  char byte = 0;
  EXPECT_EQ(::pread(name_.get(), &byte, 1, 4 << 20), -1);
  EXPECT_EQ(::pwrite(name_.get(), &byte, 1, 4 << 20), -1);
}

TEST_F(Outlived, NothingElsePassesForIt) {
  EXPECT_FALSE(reopen(name_.get(), inode_ + 1).ok());
  const auto other = SpillFile::create(folder_);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(reopen((*other)->fd(), inode_).ok());
  EXPECT_TRUE(reopen((*other)->fd(), (*other)->inode()).ok());
  // A file with a name, as one that the manager may write and its jobs may not.
  const std::string path = folder_ + "/named";
  const ScopedFd named(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  struct stat found {};
  ASSERT_EQ(::fstat(named.get(), &found), 0);
  EXPECT_FALSE(reopen(named.get(), found.st_ino).ok());
  ::unlink(path.c_str());
  const ScopedFd memory_file(::memfd_create("other", MFD_CLOEXEC));
  ASSERT_EQ(::fstat(memory_file.get(), &found), 0);
  EXPECT_FALSE(reopen(memory_file.get(), found.st_ino).ok()) << "of another file system";
}

TEST(PlaceSet, CountsEachByteOnce) {
  PlaceSet places;
  places.add(0, 10);
  places.add(20, 10);
  places.add(5, 20);
  EXPECT_EQ(places.bytes(), 30u);
  EXPECT_EQ(places.missing(0, 40), 10u);
  EXPECT_EQ(places.missing(28, 4), 2u);
  places.remove(8, 4);
  EXPECT_EQ(places.bytes(), 26u);
  EXPECT_EQ(places.missing(0, 12), 4u);
  places.remove(100, 5);
  places.remove(0, 100);
  EXPECT_EQ(places.bytes(), 0u);
  EXPECT_EQ(places.missing(3, 4), 4u);
}

TEST(ChunkKey, IsLockedAndDiffersFromTheNext) {
  const auto one = ChunkKey::random();
  const auto other = ChunkKey::random();
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_FALSE(
      std::equal((*one)->bytes().begin(), (*one)->bytes().end(), (*other)->bytes().begin()));
  EXPECT_TRUE((*one)->is_locked());
}

}  // namespace
}  // namespace plexrl::nodemgr::disk
