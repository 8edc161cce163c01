// A process that exits while it is checkpointed, over a link on which that would take hours.

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "tests/unit/simgpu/api_fixture.h"
#include "tests/unit/simgpu/peer.h"

namespace plexrl::simgpu {
namespace {

class CheckpointExitTest : public DriverTest {
 protected:
  static void SetUpTestSuite() {
    use_own_device("checkpoint-exit", ",free_delay=0,link=1KB/s");
    ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  }
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemGetInfo(&free, &total));
    return free;
  }
};

TEST_F(CheckpointExitTest, AnExitWaitsForTheCheckpointThatIsUnderWay) {
  const std::size_t before = free_bytes();
  Peer peer({"obeys", std::to_string(10 << 20)});
  ASSERT_EQ("ready", peer.said());
  ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessLock(peer.pid(), nullptr));
  std::future<CUresult> checkpoint = std::async(std::launch::async, [pid = peer.pid()] {
    return cuCheckpointProcessCheckpoint(pid, nullptr);
  });
  while (free_bytes() < before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  peer.say("exit");
  EXPECT_EQ(CUDA_SUCCESS, checkpoint.get()) << "the process left the machine before its answer";
  EXPECT_EQ(0, peer.status());
  EXPECT_EQ(before, free_bytes());
}

}  // namespace
}  // namespace plexrl::simgpu
