#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "nodemgr/admin_answers.h"
#include "nodemgr/clock.h"
#include "nodemgr/settings/cat.h"
#include "tests/unit/nodemgr/fake_node.h"

namespace plexrl::nodemgr::test {

using wire::Type;
inline constexpr std::uint64_t kMiB = 1 << 20;

class ManagerTest : public FakeNode {
 protected:
  explicit ManagerTest(int gpus = 1) : FakeNode(gpus) {}

  /// Answers kWithdraw as a process that drains at once.
  void drain(FakeProcess& process) {
    auto withdraw = process.peer.expect<wire::Withdraw>(Type::kWithdraw);
    wire::Drained drained{};
    drained.epoch = withdraw.epoch;
    drained.attempt = withdraw.attempt;
    process.peer.send(Type::kDrained, drained, 0);
    pump();
    EXPECT_EQ(process.peer.expect<wire::LeaseRef>(Type::kRevoked).epoch, withdraw.epoch);
  }
  /// Serves until this process is told to let go; policy timers are real time.
  void wait_for_withdraw(FakeProcess& process, wire::Withdraw& withdraw) {
    std::optional<Packet> packet;
    pump_until_readable(process.peer, packet);
    ASSERT_EQ(packet->type, Type::kWithdraw);
    ASSERT_TRUE(packet->read(withdraw));
  }
  /// Says it on the administration socket's terms, with the rights of who may.
  nlohmann::json tell(const nlohmann::json& request) {
    const auto answer = manager_->answer_admin(request.dump());
    return nlohmann::json::parse(answer);
  }
  nlohmann::json admin(const std::string& verb) {
    return nlohmann::json::parse(
        admin_answer({manager_->node(), manager_->leases(), socket(), {}, boot_now()},
                     cat("{\"verb\":\"", verb, "\"}")));
  }
};

class TwoGpuTest : public ManagerTest {
 protected:
  TwoGpuTest() : ManagerTest(2) {}
};

}  // namespace plexrl::nodemgr::test
