#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "nodemgr/disk_tier.h"
#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kPiece = 2 * kMiB;

/// Sealed, as slabs are.
ScopedFd sealed_memory(std::uint64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  ScopedFd fd(::memfd_create("staging", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

std::string bytes_in(const ScopedFd& fd, std::uint64_t bytes) {
  std::string read(bytes, '\0');
  EXPECT_EQ(::pread(fd.get(), read.data(), bytes, 0), static_cast<ssize_t>(bytes));
  return read;
}

/// One process of a manager with a disk tier.
class ManagerDiskTest : public ManagerTest {
 protected:
  ManagerDiskTest() {
    manager_.reset();
    set("disk.budget", "64MiB");
    more_features_ = wire::kFeatureDisk;
    start_manager();
    job_.emplace(admit(400 * kMiB));
    process_.emplace(join_with(*job_, {0}, 100 * kMiB));
  }
  void set(const char* name, const std::string& text) {
    EXPECT_TRUE(values_.set(name, text, "test").ok());
  }

  wire::DiskFile file() {
    process_->peer.send_empty(Type::kDiskFile);
    pump();
    const auto told = process_->peer.expect<wire::DiskFile>(Type::kDiskFile);
    EXPECT_EQ(process_->peer.last_fds().size(), 1u);
    name_.reset(::fcntl(process_->peer.last_fds().at(0).get(), F_DUPFD_CLOEXEC, 0));
    process_->peer.drop_fds();
    return told;
  }
  ScopedFd random_memory() {
    ScopedFd fd = sealed_memory(2 * kPiece);
    std::mt19937_64 random(5);
    std::vector<std::uint64_t> words(2 * kPiece / 8);
    for (auto& word : words) word = random();
    EXPECT_EQ(::pwrite(fd.get(), words.data(), 2 * kPiece, 0), static_cast<ssize_t>(2 * kPiece));
    return fd;
  }
  wire::DiskMoved move(Type type, const wire::DiskMove& body, const ScopedFd& memory) {
    process_->peer.send_with_fd(type, body, memory.get(), 9);
    std::optional<Packet> packet;
    pump_until_readable(process_->peer, packet);
    wire::DiskMoved moved{};
    EXPECT_EQ(packet->type, Type::kDiskMoved);
    EXPECT_EQ(packet->request, 9u);
    EXPECT_TRUE(packet->read(moved));
    return moved;
  }
  wire::DiskMoved write(const ScopedFd& memory, std::uint64_t file_offset = 0) {
    return move(Type::kDiskWrite, {0, kPiece, file_offset, {}, {}, 0}, memory);
  }
  wire::DiskMoved read(const ScopedFd& memory, const wire::DiskMoved& written,
                       std::uint64_t file_offset = 0) {
    wire::DiskMove body{0, kPiece, file_offset, {}, {}, 0};
    std::copy(std::begin(written.nonce), std::end(written.nonce), body.nonce);
    std::copy(std::begin(written.tag), std::end(written.tag), body.tag);
    return move(Type::kDiskRead, body, memory);
  }
  /// Back at a manager, saying what file it has.
  void come_back(const wire::DiskFile& file) {
    process_->peer.connect_again(socket());
    wire::Hello hello = hello_for(job_->admitted, process_->peer);
    hello.flags = wire::kHelloResume;
    hello.session = process_->welcome.session;
    hello.features = process_->welcome.features;
    process_->peer.send(Type::kHello, hello);
    pump();
    process_->peer.expect<wire::Welcome>(Type::kWelcome);
    process_->peer.send_with_fd(Type::kDiskHeld, file, name_.get());
    wire::ResumeState state{};
    state.gpu_count = 1;
    state.uuid = FakeGpus::uuid(0);
    process_->peer.send(Type::kResumeState, state, 0);
    pump();
  }
  std::uint64_t used() { return manager_->node().disk->store().bytes_in_use(); }
  bool has_named_files() { return !std::filesystem::is_empty(folder_ + "/state/spill"); }

  std::optional<FakeJob> job_;
  std::optional<FakeProcess> process_;
  ScopedFd name_;
};

TEST_F(ManagerDiskTest, BytesGoToAFileWithoutANameAndComeBack) {
  ASSERT_NE(process_->welcome.features & wire::kFeatureDisk, 0u);
  file();
  const ScopedFd from = random_memory();
  const wire::DiskMoved written = write(from, kPiece);
  EXPECT_EQ(written.outcome, wire::kDiskDone);
  EXPECT_EQ(used(), kPiece);
  EXPECT_FALSE(has_named_files());
  const ScopedFd to = sealed_memory(kPiece);
  EXPECT_EQ(read(to, written, kPiece).outcome, wire::kDiskDone);
  EXPECT_EQ(bytes_in(to, kPiece), bytes_in(from, kPiece));
  process_->peer.send(Type::kDiskDiscard, wire::DiskPlace{kPiece, kPiece}, 0);
  pump();
  EXPECT_EQ(used(), 0u);
}

TEST_F(ManagerDiskTest, AFlippedBitIsToldToTheProcess) {
  file();
  const ScopedFd from = random_memory();
  const wire::DiskMoved written = write(from);
  wire::DiskMoved other = written;
  other.tag[3] ^= 1;
  EXPECT_EQ(read(from, other).outcome, wire::kDiskDamaged);
}

TEST_F(ManagerDiskTest, BeyondTheBudgetNothingIsWritten) {
  file();
  const ScopedFd from = random_memory();
  std::uint64_t at = 0;
  for (; at < 64 * kMiB; at += kPiece) ASSERT_EQ(write(from, at).outcome, wire::kDiskDone);
  EXPECT_EQ(write(from, at).outcome, wire::kDiskFull);
  EXPECT_EQ(used(), 64 * kMiB);
  EXPECT_EQ(write(from, 0).outcome, wire::kDiskDone) << "in a place that it has";
}

TEST_F(ManagerDiskTest, TheDeathOfAProcessGivesItsBytesBack) {
  file();
  ASSERT_EQ(write(random_memory()).outcome, wire::kDiskDone);
  process_->peer.kill();
  pump();
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(manager_->node().slabs->bytes_in_use(), 0u);
}

TEST_F(ManagerDiskTest, AfterARestartItsFileIsReadOn) {
  const wire::DiskFile told = file();
  const ScopedFd from = random_memory();
  const wire::DiskMoved written = write(from);
  crash_manager();
  start_manager();
  come_back(told);
  EXPECT_EQ(used(), kPiece);
  const ScopedFd to = sealed_memory(kPiece);
  EXPECT_EQ(read(to, written).outcome, wire::kDiskDone);
  EXPECT_EQ(bytes_in(to, kPiece), bytes_in(from, kPiece));
}

TEST_F(ManagerDiskTest, AManagerWithoutABudgetStillReadsWhatTheOneBeforeWrote) {
  const wire::DiskFile told = file();
  const ScopedFd from = random_memory();
  const wire::DiskMoved written = write(from);
  crash_manager();
  set("disk.budget", "0");
  start_manager();
  come_back(told);
  EXPECT_EQ(write(from, kPiece).outcome, wire::kDiskFull);
  EXPECT_EQ(read(from, written).outcome, wire::kDiskDone);
}

TEST_F(ManagerDiskTest, AFileThatTheJournalDoesNotKnowIsNotOpened) {
  wire::DiskFile told = file();
  const ScopedFd from = random_memory();
  const wire::DiskMoved written = write(from);
  crash_manager();
  start_manager();
  ++told.inode;
  come_back(told);
  EXPECT_FALSE(process_->peer.is_cut_off());
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(read(from, written).outcome, wire::kDiskFailed);
}

TEST_F(ManagerDiskTest, NobodyBringsAFileInTheMiddleOfItsLife) {
  const wire::DiskFile told = file();
  process_->peer.send_with_fd(Type::kDiskHeld, told, name_.get());
  pump();
  EXPECT_TRUE(process_->peer.is_cut_off());
}

class BadMove : public ManagerDiskTest {
 protected:
  void expect_refused(const wire::DiskMove& body, const ScopedFd& memory) {
    process_->peer.send_with_fd(Type::kDiskWrite, body, memory.get(), 9);
    pump();
    EXPECT_TRUE(process_->peer.is_cut_off());
    EXPECT_EQ(used(), 0u);
  }
};

TEST_F(BadMove, MemoryThatCouldShrinkIsRefused) {
  expect_refused({0, kPiece, 0, {}, {}, 0}, sealed_memory(kPiece, F_SEAL_GROW));
}
TEST_F(BadMove, AFileOfTheDiskIsRefused) {
  const std::string path = folder_ + "/file";
  ScopedFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(kPiece)), 0);
  expect_refused({0, kPiece, 0, {}, {}, 0}, file);
}
TEST_F(BadMove, APlaceBeyondTheMemoryIsRefused) {
  expect_refused({kPiece, kPiece, 0, {}, {}, 0}, sealed_memory(kPiece));
}
TEST_F(BadMove, AnOddPlaceIsRefused) {
  expect_refused({0, kPiece, 512, {}, {}, 0}, sealed_memory(kPiece));
}
TEST_F(BadMove, AHugePieceIsRefused) {
  expect_refused({0, 2 * wire::kMostDiskPiece, 0, {}, {}, 0},
                 sealed_memory(2 * wire::kMostDiskPiece));
}

TEST_F(ManagerDiskTest, TheStagingSlabIsGivenOverTheBudget) {
  process_->peer.send(Type::kDiskStaging, wire::SlabRequest{manager_->node().staging_bytes()}, 4);
  std::optional<Packet> packet;
  pump_until_readable(process_->peer, packet);
  EXPECT_EQ(packet->type, Type::kSlab);
  EXPECT_EQ(packet->fds.size(), 1u);
  EXPECT_EQ(manager_->node().slabs->bytes_with(process_->welcome.session), 0u)
      << "nobody takes it away for others";
  process_->peer.send(Type::kDiskStaging, wire::SlabRequest{kMiB}, 4);
  pump();
  EXPECT_TRUE(process_->peer.is_cut_off());
}

TEST_F(ManagerTest, WithoutABudgetThereIsNoDiskTier) {
  more_features_ = wire::kFeatureDisk;
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join_with(job, {0}, 0);
  EXPECT_EQ(process.welcome.features & wire::kFeatureDisk, 0u);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/state/spill"));
}

// ---- the folder

class DiskTierFolder : public ::testing::Test {
 protected:
  DiskTierFolder() {
    std::string pattern = std::filesystem::current_path() / "tierXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~DiskTierFolder() override { std::filesystem::remove_all(folder_); }
  static std::string error(const std::string& folder) {
    const auto opened = DiskTier::open({folder, kMiB, 1});
    return opened.ok() ? "" : message_of(opened.status());
  }
  std::string folder_;
};

TEST_F(DiskTierFolder, IsMadeForItsOwnerAlone) {
  const std::string folder = folder_ + "/a/spill";
  EXPECT_EQ(error(folder), "");
  struct stat made {};
  ASSERT_EQ(::stat(folder.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0700u);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}
TEST_F(DiskTierFolder, ThatOthersMayWriteIsRefused) {
  ::chmod(folder_.c_str(), 0777);
  EXPECT_THAT(error(folder_), HasSubstr("can be written by others: chmod 700"));
}
TEST_F(DiskTierFolder, ThatIsAFileIsRefused) {
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_THAT(error(folder_ + "/file"), HasSubstr("[disk] dir"));
}
TEST_F(DiskTierFolder, PromisesCountOnNoMoreThanIsFree) {
  auto tier = DiskTier::open({folder_, std::uint64_t{1} << 60, 1});
  ASSERT_TRUE(tier.ok());
  const std::uint64_t usable = (*tier)->usable();
  EXPECT_LT(usable, std::uint64_t{1} << 60);
  EXPECT_THAT((*tier)->warning(), HasSubstr("disk.budget"));
}

}  // namespace
}  // namespace plexrl::nodemgr::test
