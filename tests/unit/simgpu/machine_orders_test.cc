// Orders to a process that leaves the machine. A process may have a machine open more than once,
// each with a slot of its own: here one orders and the other, which has the same pid, obeys.

#include <future>

#include "tests/unit/simgpu/machine_fixture.h"

namespace plexrl::simgpu {
namespace {

class MachineOrdersTest : public MachineTest {
 protected:
  MachineOrdersTest() : asker_(open()), obedient_(open()) { obedient_->begin_orders(getpid()); }
  /// Gives an order and returns when the other has it.
  std::future<int> ask(Machine::Order* order) {
    std::future<int> answer = std::async(std::launch::async, [this] {
      return asker_->order(getpid(), ProcessOrder::kCheckpoint, 0);
    });
    EXPECT_TRUE(obedient_->next_order(order));
    return answer;
  }
  std::unique_ptr<Machine> asker_;
  std::unique_ptr<Machine> obedient_;
};

TEST_F(MachineOrdersTest, AnAnswerCountsThoughItsProcessLeavesRightAfter) {
  Machine::Order order{};
  std::future<int> answer = ask(&order);
  obedient_->answer_order(order, 7, ProcessState::kCheckpointed);
  obedient_->leave();
  EXPECT_EQ(answer.get(), 7);
}

TEST_F(MachineOrdersTest, WhoTakesTheSlotOfAProcessThatLeftAnswersNothingForIt) {
  Machine::Order order{};
  std::future<int> answer = ask(&order);
  obedient_->leave();
  const auto next = open();
  next->begin_orders(getpid());
  EXPECT_EQ(answer.get(), Machine::kNoProcess);
}

}  // namespace
}  // namespace plexrl::simgpu
