#include "tests/unit/nodemgr/manager_fixture.h"

/// Shared memory across a restart of the manager: whose it is when its owner is there again, and
/// when it has died meanwhile.
namespace plexrl::nodemgr::test {
namespace {

constexpr std::uint64_t kChunk = 32 * kMiB;

class ClaimsTest : public ManagerTest {
 protected:
  void restart() {
    crash_manager();
    start_manager();
  }
  /// Comes back with kHelloResume, without a lease; has not said yet what it shares.
  void come_back(FakeProcess& process) { come_back(process, job_, ~std::uint64_t{0}); }
  void come_back(FakeProcess& process, const FakeJob& job, std::uint64_t features) {
    process.peer.connect_again(socket());
    wire::Hello hello = hello_for(job.admitted, process.peer);
    hello.features &= features;
    hello.flags = wire::kHelloResume;
    hello.session = process.welcome.session;
    process.peer.send(Type::kHello, hello);
    pump();
    process.welcome = process.peer.expect<wire::Welcome>(Type::kWelcome);
    wire::ResumeState state{};
    state.gpu_count = 1;
    state.uuid = FakeGpus::uuid(0);
    process.peer.send(Type::kResumeState, state, 0);
    pump();
  }
  void tell_export(FakeProcess& owner) {
    owner.peer.send(Type::kExport, what_, 0);
    pump();
    EXPECT_EQ(next(owner), Type::kExported);
  }
  void tell_import(FakeProcess& importer) {
    importer.peer.send(Type::kImport, wire::Import{what_.id, what_.tag}, 0);
    pump();
  }
  void lose_connection(FakeProcess& process) {
    process.peer.disconnect();
    pump();
  }
  void all_told(FakeProcess& process) {
    process.peer.send_empty(Type::kSharesTold);
    pump();
  }
  /// The next message of another type than kSharesTold; none: there is none.
  std::optional<Type> next(FakeProcess& process) {
    auto packet = process.peer.next();
    while (packet && packet->type == Type::kSharesTold) packet = process.peer.next();
    return packet ? std::optional(packet->type) : std::nullopt;
  }

  void SetUp() override {
    what_.chunks = 1;
    what_.bytes = what_.chunk_bytes = kChunk;
    owner_.peer.send(Type::kExport, what_);
    pump();
    const auto name = owner_.peer.expect<wire::Exported>(Type::kExported);
    what_.id = name.id;
    what_.tag = name.tag;
    for (FakeProcess* importer : {&first_, &second_}) {
      importer->peer.send(Type::kImport, wire::Import{what_.id, what_.tag});
      pump();
      importer->peer.expect<wire::Imported>(Type::kImported);
    }
  }

  FakeJob job_ = admit(256 * kMiB);
  FakeProcess owner_ = join_with(job_, {0}, kMiB);
  FakeProcess first_ = join_with(job_, {0}, kMiB), second_ = join_with(job_, {0}, kMiB);
  wire::Export what_{};
};

TEST_F(ClaimsTest, AnOwnerThatComesBackLastHasItsImportersAgain) {
  restart();
  for (FakeProcess* importer : {&first_, &second_}) {
    come_back(*importer);
    tell_import(*importer);
    all_told(*importer);
    EXPECT_EQ(next(*importer), std::nullopt) << "the owner may still come";
  }
  come_back(owner_);
  tell_export(owner_);
  EXPECT_EQ(next(first_), Type::kOwnerBack);
  EXPECT_EQ(next(second_), Type::kOwnerBack);
  all_told(owner_);
  EXPECT_EQ(next(first_), std::nullopt);
  owner_.peer.kill();
  pump();
  EXPECT_EQ(next(first_), Type::kOwnerGone) << "it was registered as an importer";
}

TEST_F(ClaimsTest, AnOwnerThatComesBackFirstIsFound) {
  restart();
  come_back(owner_);
  tell_export(owner_);
  come_back(first_);
  tell_import(first_);
  EXPECT_EQ(next(first_), Type::kOwnerBack);
}

TEST_F(ClaimsTest, WhenTheOwnerDiedUnseenAClaimantIsAskedAndOnlyOnceAllHaveSpoken) {
  crash_manager();
  owner_.peer.kill();
  start_manager();
  come_back(first_);
  tell_import(first_);
  all_told(first_);
  EXPECT_EQ(next(first_), std::nullopt) << "the other has not said that it does not own it";
  come_back(second_);
  tell_import(second_);
  all_told(second_);
  const auto asked = first_.peer.expect<wire::OwnerGone>(Type::kOwnerGone);
  EXPECT_EQ(asked.is_heir, 1u);
  EXPECT_EQ(asked.rest_is_lost, 1u);
  EXPECT_EQ(next(second_), std::nullopt);
  tell_export(first_);
  EXPECT_EQ(next(second_), Type::kOwnerBack);
  second_.peer.send(Type::kFetchHandles, wire::Handles{what_.id, 0, 0, 1}, 0);
  pump();
  EXPECT_EQ(next(first_), Type::kFetchHandles);
}

TEST_F(ClaimsTest, AClaimantThatLacksAPartIsFollowedByTheNext) {
  crash_manager();
  owner_.peer.kill();
  start_manager();
  for (FakeProcess* importer : {&first_, &second_}) {
    come_back(*importer);
    tell_import(*importer);
  }
  all_told(first_);
  all_told(second_);
  first_.peer.expect<wire::OwnerGone>(Type::kOwnerGone);
  first_.peer.send(Type::kImportClosed, wire::ExportRef{what_.id}, 0);
  pump();
  EXPECT_EQ(next(second_), Type::kOwnerGone);
  second_.peer.kill();
  pump();
  come_back(first_);
  all_told(first_);
  EXPECT_EQ(next(first_), std::nullopt) << "nobody claims it any more";
}

TEST_F(ClaimsTest, AClaimantThatDiesWhileItIsAskedIsFollowedByTheNext) {
  crash_manager();
  owner_.peer.kill();
  start_manager();
  for (FakeProcess* importer : {&first_, &second_}) {
    come_back(*importer);
    tell_import(*importer);
    all_told(*importer);
  }
  first_.peer.expect<wire::OwnerGone>(Type::kOwnerGone);
  first_.peer.kill();
  pump();
  EXPECT_EQ(next(second_), Type::kOwnerGone);
}

TEST_F(ClaimsTest, MemoryThatWasFreedIsNotGivenUpBeforeItsImportersHaveComeBack) {
  restart();
  come_back(owner_);
  tell_export(owner_);
  owner_.peer.send(Type::kExportEnded, wire::ExportRef{what_.id}, 3);
  pump();
  EXPECT_EQ(next(owner_), Type::kExportEnded);
  all_told(owner_);
  for (FakeProcess* importer : {&first_, &second_}) {
    come_back(*importer);
    tell_import(*importer);
    EXPECT_EQ(next(*importer), Type::kOwnerBack);
    importer->peer.send(Type::kImportClosed, wire::ExportRef{what_.id}, 0);
    EXPECT_EQ(next(owner_), std::nullopt) << "another may still come";
    all_told(*importer);
  }
  owner_.peer.send(Type::kExportEnded, wire::ExportRef{what_.id}, 0);  // now that all have spoken
  pump();
  EXPECT_EQ(next(owner_), Type::kExportUnused);
}

TEST_F(ClaimsTest, AClaimWithAnotherTagGetsNothing) {
  crash_manager();
  owner_.peer.kill();
  start_manager();
  come_back(first_);
  tell_import(first_);
  come_back(second_);
  second_.peer.send(Type::kImport, wire::Import{what_.id, {1, 2}}, 0);
  all_told(first_);
  all_told(second_);
  EXPECT_EQ(next(first_), Type::kOwnerGone);
  tell_export(first_);
  EXPECT_EQ(next(second_), std::nullopt);
}

TEST_F(ClaimsTest, WhenTheLastThatWasWaitedForDiesTheOthersAreToldSo) {
  restart();
  come_back(owner_);
  tell_export(owner_);
  all_told(owner_);
  first_.peer.kill();
  pump();
  EXPECT_FALSE(owner_.peer.next().has_value()) << "one is still to come";
  second_.peer.kill();
  pump();
  const auto told = owner_.peer.next();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->type, Type::kSharesTold);
}

TEST_F(ClaimsTest, WhoseShimCantSayWhatItSharesIsNotWaitedFor) {
  crash_manager();
  owner_.peer.kill();
  start_manager();
  come_back(first_);
  tell_import(first_);
  all_told(first_);
  EXPECT_EQ(next(first_), std::nullopt) << "of the other it is not known yet";
  come_back(second_, job_, ~std::uint64_t{wire::kFeatureSharesTold});
  EXPECT_EQ(next(first_), Type::kOwnerGone);
}

TEST_F(ClaimsTest, ACandidateWhoseConnectionWasLostIsAskedAgain) {
  crash_manager();
  owner_.peer.kill();
  start_manager();
  for (FakeProcess* importer : {&first_, &second_}) {
    come_back(*importer);
    tell_import(*importer);
    all_told(*importer);
  }
  lose_connection(first_);
  come_back(first_);
  tell_import(first_);
  all_told(first_);
  const auto asked = first_.peer.expect<wire::OwnerGone>(Type::kOwnerGone);
  EXPECT_EQ(asked.rest_is_lost, 1u);
  EXPECT_EQ(next(second_), std::nullopt) << "the first may have said yes";
  tell_export(first_);
  EXPECT_EQ(next(second_), Type::kOwnerBack);
}

TEST_F(ClaimsTest, AnHeirWhoseConnectionWasLostLearnsThatItIsTheHeir) {
  owner_.peer.kill();
  pump();
  EXPECT_EQ(next(second_), Type::kOwnerGone);
  lose_connection(first_);
  come_back(first_);
  tell_import(first_);
  const auto gone = first_.peer.expect<wire::OwnerGone>(Type::kOwnerGone);
  EXPECT_EQ(gone.is_heir, 1u);
  EXPECT_EQ(gone.rest_is_lost, 0u);
}

TEST_F(ClaimsTest, AnOwnerThatComesTooLateIsToldSoAndStaysConnected) {
  restart();
  come_back(first_);
  tell_export(first_);
  come_back(owner_);
  owner_.peer.send(Type::kExport, what_, 0);
  pump();
  EXPECT_EQ(next(owner_), Type::kError);
  all_told(owner_);
  charge(owner_, 0, kMiB);
  owner_.peer.send(Type::kExport, wire::Export{}, 0);
  pump();
  EXPECT_EQ(next(owner_), Type::kError);
  EXPECT_TRUE(owner_.peer.is_cut_off()) << "what makes no sense breaks the connection";
}

/// A job that names another one's memory before that does.
class ThiefTest : public ClaimsTest {
 protected:
  void SetUp() override {
    ClaimsTest::SetUp();
    crash_manager();
    owner_.peer.kill();
    start_manager();
    come_back(thief_, other_, ~std::uint64_t{0});
  }
  void expect_the_importers_are_asked() {
    for (FakeProcess* importer : {&first_, &second_}) {
      come_back(*importer);
      tell_import(*importer);
      all_told(*importer);
    }
    EXPECT_EQ(next(first_), Type::kOwnerGone);
    tell_export(first_);
    EXPECT_EQ(next(second_), Type::kOwnerBack);
  }

  FakeJob other_ = admit(256 * kMiB, "other");
  FakeProcess thief_ = join_with(other_, {0}, kMiB);
};

TEST_F(ThiefTest, AClaimOfAnotherJobIsInNobodysWay) {
  thief_.peer.send(Type::kImport, wire::Import{what_.id, {1, 2}}, 0);
  pump();
  expect_the_importers_are_asked();
  EXPECT_EQ(next(thief_), std::nullopt);
}

TEST_F(ThiefTest, AnExportOfAnotherJobIsInNobodysWay) {
  tell_export(thief_);
  expect_the_importers_are_asked();
  EXPECT_EQ(next(thief_), std::nullopt);
}

TEST_F(ThiefTest, ClaimsWithoutNumberLeaveOtherJobsTheirs) {
  for (std::uint64_t id = 1; id <= 70'000; ++id) {
    thief_.peer.send(Type::kImport, wire::Import{id, {1, 2}}, 0);
    if (id % 64 == 0) pump();
  }
  pump();
  expect_the_importers_are_asked();
}

}  // namespace
}  // namespace plexrl::nodemgr::test
