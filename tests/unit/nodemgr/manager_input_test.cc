#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/nodemgr/manager_fixture.h"

namespace plexrl::nodemgr::test {
namespace {

TEST_F(ManagerTest, MalformedPacketsEndOnlyTheirSendersConnection) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess good = join_with(job, {0}, 0);
  wire::Header header{};
  header.magic = wire::kMagic;
  header.version = wire::kVersion;
  header.type = static_cast<std::uint16_t>(Type::kHello);
  header.bytes = 4000;
  std::string lying(reinterpret_cast<const char*>(&header), sizeof header);
  for (const std::string& bytes :
       {std::string("x"), std::string(9000, 'a'), lying, std::string(sizeof(wire::Header), '\0')}) {
    FakePeer bad(socket());
    bad.send_raw(bytes);
    pump();
    EXPECT_TRUE(bad.is_cut_off());
  }
  run(good);
}

TEST_F(ManagerTest, MessagesOutOfPlaceOrRangeAreRefused) {
  FakeJob job = admit(100 * kMiB);
  auto breaks = [&](Type type, const auto& body) {
    FakeProcess process = join(job);
    process.peer.send(type, body);
    pump();
    EXPECT_EQ(process.peer.expect<wire::Error>(Type::kError).code, wire::kErrorMalformed);
    EXPECT_TRUE(process.peer.is_cut_off());
  };
  breaks(Type::kCharge, wire::Charge{0, 0, 1});
  breaks(Type::kCharge, wire::Charge{4000000000u, 0, 1});
  breaks(Type::kEvicted, wire::Evicted{});
  breaks(Type::kSlabRequest, wire::SlabRequest{5});
  breaks(Type::kSlabReturn, wire::Slab{99, 1});
  breaks(Type::kPaged, wire::Paged{2, 0, 0, 0, 0, 0, 0});
  breaks(Type::kPaged, wire::Paged{0, 0, ~std::uint64_t{0}, 0, 0, 0, 0});
  breaks(Type::kResumeState, wire::ResumeState{});
  breaks(Type::kWantLease, wire::LeaseRef{});
  wire::Activity activity{};
  activity.count = 1000;
  breaks(Type::kActivity, activity);
}

TEST_F(ManagerTest, AnUnknownMessageIsAnsweredAndIgnored) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess process = join(job);
  process.peer.send(static_cast<Type>(0x7777), wire::LeaseRef{});
  pump();
  EXPECT_EQ(process.peer.expect<wire::Error>(Type::kError).code, wire::kErrorUnknownType);
  EXPECT_FALSE(process.peer.is_cut_off());
}

TEST_F(ManagerTest, WhoDoesNotReadIsDroppedAndNobodyElseIs) {
  FakeJob job = admit(100 * kMiB);
  FakeProcess deaf = join(job);
  FakeProcess good = join_with(job, {0}, 0);
  std::size_t sessions = manager_->node().sessions.size();
  for (int i = 0; i < 2000; ++i) {
    wire::LeaseRef body{};
    auto bytes = std::as_bytes(std::span(&body, 1));
    if (!deaf.peer.try_send(static_cast<Type>(0x7777), bytes)) break;
    pump();
  }
  pump();
  EXPECT_TRUE(deaf.peer.is_cut_off());
  EXPECT_EQ(manager_->node().sessions.size(), sessions) << "the process itself lives on";
  run(good);
}

}  // namespace
}  // namespace plexrl::nodemgr::test
