// A process whose threads come and go in the driver and that forks meanwhile: each child ends by
// exit(), with the destructors of its thread.

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

constexpr int kForks = 300, kThreads = 3;

using ForkTest = DriverTest;

TEST_F(ForkTest, AChildOfAProcessWhoseThreadsComeAndGoExits) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      while (!over.load()) {
        std::thread([] {
          int version = 0;
          cuDriverGetVersion(&version);
          CUcontext none = nullptr;
          cuCtxGetCurrent(&none);
        }).join();
      }
    });
  }
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      CUcontext none = nullptr;
      const bool is_refused = cuCtxGetCurrent(&none) == CUDA_ERROR_NOT_INITIALIZED;
      std::thread([] {
        CUcontext none = nullptr;
        cuCtxGetCurrent(&none);
      }).join();
      exit(is_refused ? 7 : 8);
    }
    ASSERT_GT(child, 0);
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(7, WEXITSTATUS(status));
  }
  over.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace plexrl::simgpu
