#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/nodemgr/manager_fixture.h"

/// Device memory that processes of a job share: names, importers, handles passed through, and who
/// has it when a process is dead.
namespace plexrl::nodemgr::test {
namespace {

constexpr std::uint64_t kChunk = 32 * kMiB;

class ExportsTest : public ManagerTest {
 protected:
  wire::Exported offer(FakeProcess& owner) {
    wire::Export what{};
    what.chunks = 3;
    what.bytes = 2 * kChunk + 2 * kMiB;
    what.chunk_bytes = kChunk;
    owner.peer.send(Type::kExport, what);
    pump();
    return owner.peer.expect<wire::Exported>(Type::kExported);
  }
  wire::Imported import(FakeProcess& process, const wire::Exported& name) {
    process.peer.send(Type::kImport, wire::Import{name.id, name.tag});
    pump();
    return process.peer.expect<wire::Imported>(Type::kImported);
  }
  bool is_refused(FakeProcess& process, std::uint64_t id, const wire::Id128& tag) {
    process.peer.send(Type::kImport, wire::Import{id, tag});
    pump();
    auto packet = process.peer.next();
    return packet && packet->type == Type::kError;
  }
  /// What the owner's kExportEnded is answered by.
  Type end(FakeProcess& owner, std::uint64_t id) {
    owner.peer.send(Type::kExportEnded, wire::ExportRef{id});
    pump();
    auto packet = owner.peer.next();
    return packet ? packet->type : Type::kError;
  }
  static ino_t inode(int fd) {
    struct stat file {};
    EXPECT_EQ(::fstat(fd, &file), 0);
    return file.st_ino;
  }

  FakeJob job_ = admit(256 * kMiB);
};

TEST_F(ExportsTest, AnImporterLearnsHowTheMemoryIsCut) {
  FakeProcess owner = join_with(job_, {0}, kMiB), importer = join_with(job_, {0}, kMiB);
  const wire::Imported imported = import(importer, offer(owner));
  EXPECT_EQ(imported.chunks, 3u);
  EXPECT_EQ(imported.bytes, 2 * kChunk + 2 * kMiB);
  EXPECT_EQ(imported.chunk_bytes, kChunk);
  EXPECT_EQ(imported.uuid, FakeGpus::uuid(0));
}

TEST_F(ExportsTest, WhoDoesNotKnowTheTagOrIsOfAnotherJobGetsNothing) {
  FakeProcess owner = join_with(job_, {0}, kMiB), importer = join_with(job_, {0}, kMiB);
  const wire::Exported name = offer(owner);
  EXPECT_TRUE(is_refused(importer, name.id, wire::Id128{name.tag.hi, name.tag.lo + 1}));
  EXPECT_TRUE(is_refused(importer, name.id + 1, name.tag));
  FakeJob other = admit(256 * kMiB, "other");
  FakeProcess stranger = join_with(other, {0}, kMiB);
  EXPECT_TRUE(is_refused(stranger, name.id, name.tag));
}

TEST_F(ExportsTest, HandlesGoFromTheOwnerToWhoAskedAndAreNotKept) {
  FakeProcess owner = join_with(job_, {0}, kMiB), importer = join_with(job_, {0}, kMiB);
  const wire::Exported name = offer(owner);
  import(importer, name);
  importer.peer.send(Type::kFetchHandles, wire::Handles{name.id, 77, 1, 1}, 0);
  pump();
  const auto fetch = owner.peer.expect<wire::Handles>(Type::kFetchHandles);
  EXPECT_EQ(fetch.first, 1u);
  EXPECT_EQ(fetch.importer, importer.welcome.session);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  owner.peer.send_with_fd(Type::kHandles, fetch, ends[1]);
  pump();
  importer.peer.expect<wire::Handles>(Type::kHandles);
  ASSERT_EQ(importer.peer.last_fds().size(), 1u);
  EXPECT_EQ(inode(importer.peer.last_fds()[0].get()), inode(ends[1]));
  ::close(ends[1]);
  importer.peer.drop_fds();
  // Nobody has the writing end any more: reading finds the end.
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
}

TEST_F(ExportsTest, FiguresThatMakeNoSenseCutTheProcessOff) {
  FakeProcess owner = join_with(job_, {0}, kMiB), importer = join_with(job_, {0}, kMiB);
  const wire::Exported name = offer(owner);
  import(importer, name);
  importer.peer.send(Type::kFetchHandles, wire::Handles{name.id, 0, 2, 4}, 0);
  pump();
  importer.peer.next();
  EXPECT_TRUE(importer.peer.is_cut_off());
  wire::Export wrong{};
  wrong.chunks = 2;
  wrong.bytes = 2 * kMiB;
  wrong.chunk_bytes = 2 * kMiB;
  owner.peer.send(Type::kExport, wrong);
  pump();
  owner.peer.next();
  EXPECT_TRUE(owner.peer.is_cut_off());
}

TEST_F(ExportsTest, FreedMemoryStaysUntilTheLastImporterClosesIt) {
  FakeProcess owner = join_with(job_, {0}, kMiB), importer = join_with(job_, {0}, kMiB);
  const wire::Exported unused = offer(owner), used = offer(owner);
  import(importer, used);
  EXPECT_EQ(end(owner, unused.id), Type::kExportUnused);
  EXPECT_EQ(end(owner, used.id), Type::kExportEnded);
  EXPECT_TRUE(is_refused(importer, used.id, used.tag));
  importer.peer.send(Type::kImportClosed, wire::ExportRef{used.id}, 0);
  pump();
  EXPECT_EQ(owner.peer.expect<wire::ExportRef>(Type::kExportUnused).id, used.id);
}

TEST_F(ExportsTest, ADeadImporterHasClosedAll) {
  FakeProcess owner = join_with(job_, {0}, kMiB), importer = join_with(job_, {0}, kMiB);
  const wire::Exported name = offer(owner);
  import(importer, name);
  EXPECT_EQ(end(owner, name.id), Type::kExportEnded);
  importer.peer.kill();
  pump();
  EXPECT_EQ(owner.peer.expect<wire::ExportRef>(Type::kExportUnused).id, name.id);
}

TEST_F(ExportsTest, WhenTheOwnerDiesAnImporterInheritsWhatItHadParked) {
  FakeProcess owner = join_with(job_, {0}, kMiB), importer = join_with(job_, {0}, kMiB);
  const wire::Exported name = offer(owner);
  import(importer, name);
  owner.peer.send(Type::kSlabRequest, wire::SlabRequest{kChunk}, 9);
  std::optional<Packet> packet;
  pump_until_readable(owner.peer, packet);
  wire::Slab slab{};
  ASSERT_TRUE(packet->read(slab));
  owner.peer.send(Type::kParked, wire::Parked{name.id, 1, 0, slab.id, slab.bytes, 0}, 0);
  owner.peer.send(Type::kParked, wire::Parked{name.id, 2, 0, slab.id, slab.bytes, 4096}, 0);
  owner.peer.send(Type::kParked, wire::Parked{name.id, 2, 0, 0, 0, 0}, 0);  // has no bytes any more
  pump();
  for (int i = 0; i < 3; ++i) {  // told to let go
    importer.peer.expect<wire::Parked>(Type::kParked);
    EXPECT_TRUE(importer.peer.last_fds().empty());
  }
  const ino_t slab_inode = inode(packet->fds[0].get());
  owner.peer.kill();
  pump();
  const auto parked = importer.peer.expect<wire::Parked>(Type::kParked);
  EXPECT_EQ(parked.chunk, 1u);
  EXPECT_EQ(parked.slab, slab.id);
  ASSERT_EQ(importer.peer.last_fds().size(), 1u);
  EXPECT_EQ(inode(importer.peer.last_fds()[0].get()), slab_inode);
  const auto gone = importer.peer.expect<wire::OwnerGone>(Type::kOwnerGone);
  EXPECT_EQ(gone.is_heir, 1u);
  // It is the heir's now, slab and all.
  importer.peer.send(Type::kSlabReturn, slab, 0);
  EXPECT_EQ(end(importer, name.id), Type::kExportUnused);
}

TEST_F(ExportsTest, OfSeveralImportersOneInheritsAndTheOthersAreTold) {
  FakeProcess owner = join_with(job_, {0}, kMiB);
  FakeProcess first = join_with(job_, {0}, kMiB), second = join_with(job_, {0}, kMiB);
  const wire::Exported name = offer(owner);
  import(first, name);
  import(second, name);
  owner.peer.kill();
  pump();
  const auto to_first = first.peer.expect<wire::OwnerGone>(Type::kOwnerGone);
  const auto to_second = second.peer.expect<wire::OwnerGone>(Type::kOwnerGone);
  EXPECT_EQ(to_first.is_heir + to_second.is_heir, 1u);
}

}  // namespace
}  // namespace plexrl::nodemgr::test
