#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

/// Two jobs of 520 MiB on a GPU of 1 GiB, and little more host memory than has to leave of one of
/// them.
class SlabTest : public ManagerTest {
 protected:
  static constexpr std::uint64_t kHost = 192 * kMiB;
  SlabTest() {
    manager_.reset();
    EXPECT_TRUE(values_.set("host.budget", "192MiB", "test").ok());
    start_manager();
  }

  /// `first` runs, and leaves the GPU to `second`, which loads. What first is to let go of.
  wire::Evict exchange(FakeProcess& first, FakeProcess& second) {
    run(first);
    report_idle(first);
    second.peer.send(Type::kWantLease, wire::WantLease{1, 0}, 0);
    wire::Withdraw withdraw{};
    wait_for_withdraw(first, withdraw);
    first.peer.send(Type::kDrained, wire::Drained{withdraw.epoch, withdraw.attempt, 0, 0}, 0);
    pump();
    first.peer.expect<wire::LeaseRef>(Type::kRevoked);
    const auto evict = first.peer.expect<wire::Evict>(Type::kEvict);
    second.peer.expect<wire::Grant>(Type::kGrant);
    return evict;
  }
  std::uint64_t get_slab(FakeProcess& process, std::uint64_t bytes) {
    process.peer.send(Type::kSlabRequest, wire::SlabRequest{bytes}, 5);
    return slab_of(process);
  }
  std::uint64_t slab_of(FakeProcess& process) {
    std::optional<Packet> packet;
    pump_until_readable(process.peer, packet);
    wire::Slab slab{};
    EXPECT_EQ(packet->type, Type::kSlab);
    EXPECT_TRUE(packet->read(slab));
    return slab.id;
  }
};

TEST_F(SlabTest, WhoLoadsGivesBackWhatTheOtherNeeds) {
  FakeJob job_a = admit(520 * kMiB, "a");
  FakeJob job_b = admit(520 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 520 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 520 * kMiB);
  const std::uint64_t slab = get_slab(b, kHost);
  const wire::Evict evict = exchange(a, b);
  ASSERT_GT(evict.bytes, 4 * kMiB);
  a.peer.send(Type::kSlabRequest, wire::SlabRequest{4 * kMiB}, 7);
  pump();
  const auto recall = b.peer.expect<wire::Slab>(Type::kSlabReturn);
  EXPECT_EQ(recall.id, 0u);
  EXPECT_EQ(recall.bytes, std::min(kHost, evict.bytes)) << "the next chunks will need some, too";
  EXPECT_FALSE(a.peer.next());
  b.peer.send(Type::kSlabReturn, wire::Slab{slab, kHost}, 0);
  slab_of(a);
}

TEST_F(SlabTest, WhoHasOnlyEvictedBytesIsNotAsked) {
  FakeJob job_a = admit(520 * kMiB, "a");
  FakeJob job_b = admit(520 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 520 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 520 * kMiB);
  const std::uint64_t slab = get_slab(a, kHost);
  wire::MemoryReport report{};
  report.host_bytes = kHost;
  exchange(a, b);
  a.peer.send(Type::kMemoryReport, report, 0);
  pump();
  // It is its own slab that is full, and b has none.
  a.peer.send(Type::kSlabRequest, wire::SlabRequest{4 * kMiB}, 7);
  pump();
  const auto error = a.peer.expect<wire::Error>(Type::kError);
  EXPECT_EQ(error.code, wire::kErrorNoHostMemory);
  EXPECT_FALSE(b.peer.next());
  EXPECT_NE(slab, 0u);
}

TEST_F(SlabTest, WhoWantsSlabsReadyTakesNothingFromOthers) {
  FakeJob job_a = admit(520 * kMiB, "a");
  FakeJob job_b = admit(520 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 520 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 520 * kMiB);
  get_slab(b, kHost);
  a.peer.send(Type::kSlabRequest, wire::SlabRequest{4 * kMiB}, 7);
  pump();
  EXPECT_EQ(a.peer.expect<wire::Error>(Type::kError).code, wire::kErrorNoHostMemory);
  EXPECT_FALSE(b.peer.next());
}

TEST_F(SlabTest, WhoGivesNothingBackIsNotWaitedForForEver) {
  FakeJob job_a = admit(520 * kMiB, "a");
  FakeJob job_b = admit(520 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 520 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 520 * kMiB);
  get_slab(b, kHost);
  exchange(a, b);
  a.peer.send(Type::kSlabRequest, wire::SlabRequest{4 * kMiB}, 7);
  std::optional<Packet> packet;
  pump_until_readable(a.peer, packet);
  EXPECT_EQ(packet->type, Type::kError);
}

TEST_F(SlabTest, TheEndOfAProcessServesWhoWaits) {
  FakeJob job_a = admit(520 * kMiB, "a");
  FakeJob job_b = admit(520 * kMiB, "b");
  FakeProcess a = join_with(job_a, {0}, 520 * kMiB);
  FakeProcess b = join_with(job_b, {0}, 520 * kMiB);
  get_slab(b, kHost);
  exchange(a, b);
  a.peer.send(Type::kSlabRequest, wire::SlabRequest{4 * kMiB}, 7);
  pump();
  b.peer.kill();
  slab_of(a);
}

}  // namespace
}  // namespace plexrl::nodemgr::test
