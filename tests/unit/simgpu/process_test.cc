// Processes that share a simulated machine: each runs process_peer in a process of its own.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/simgpu/api_fixture.h"

extern char** environ;

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kMiB = 1 << 20;

class ProcessTest : public DriverTest {
 protected:
  static std::string peer(const std::string& arguments) {
    return std::string(PLEXRL_TEST_PEER) + " " + arguments;
  }
  /// Exit status of the peer.
  static int run(const std::string& arguments) {
    const int status = std::system(peer(arguments).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemGetInfo(&free, &total));
    return free;
  }
  bool is_filled(CUdeviceptr pointer, std::size_t bytes, unsigned char value) {
    std::vector<unsigned char> host(bytes);
    EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(host.data(), pointer, bytes));
    return host == std::vector<unsigned char>(bytes, value);
  }
};

TEST_F(ProcessTest, ADescriptorCarriesMemoryToAnotherProcess) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr base = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemCreate(&handle, 2 * kMiB, &properties, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressReserve(&base, 2 * kMiB, 0, 0, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuMemMap(base, 2 * kMiB, 0, handle, 0));
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device_}},
                         CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(CUDA_SUCCESS, cuMemSetAccess(base, 2 * kMiB, &access, 1));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(base, 41, 2 * kMiB));
  int descriptor = -1;
  ASSERT_EQ(CUDA_SUCCESS, cuMemExportToShareableHandle(
                              &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const int inherited = dup(descriptor);  // without close-on-exec
  EXPECT_EQ(0, run("descriptor " + std::to_string(inherited) + " 41"));
  EXPECT_TRUE(is_filled(base, 2 * kMiB, 42)) << "the other process wrote into the same memory";
  close(inherited);
  close(descriptor);
  ASSERT_EQ(CUDA_SUCCESS, cuMemUnmap(base, 2 * kMiB));
  const std::size_t before = free_bytes();
  ASSERT_EQ(CUDA_SUCCESS, cuMemRelease(handle));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAddressFree(base, 2 * kMiB));
  EXPECT_EQ(before + 2 * kMiB, free_bytes()) << "the peer's import went with it";
}

std::string hex(const CUipcMemHandle& handle) {
  std::string text;
  char digits[3];
  for (std::size_t i = 0; i < sizeof handle; ++i) {
    std::snprintf(digits, sizeof digits, "%02x",
                  reinterpret_cast<const unsigned char*>(&handle)[i]);
    text += digits;
  }
  return text;
}

TEST_F(ProcessTest, AnIpcHandleOpensLargeAndSmallMemoryAtTheRightPlace) {
  for (const std::size_t bytes : {std::size_t{3 * kMiB}, std::size_t{1000}}) {
    CUdeviceptr neighbour = 0, pointer = 0;
    ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&neighbour, bytes));
    ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&pointer, bytes));
    ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(neighbour, 99, bytes));
    ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(pointer, 5, bytes));
    ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
    CUipcMemHandle handle;
    ASSERT_EQ(CUDA_SUCCESS, cuIpcGetMemHandle(&handle, pointer));
    EXPECT_EQ(0, run("ipc " + hex(handle) + " " + std::to_string(bytes) + " 5"));
    EXPECT_TRUE(is_filled(pointer, bytes, 6));
    EXPECT_TRUE(is_filled(neighbour, bytes, 99));
    ASSERT_EQ(CUDA_SUCCESS, cuMemFree(pointer));
    ASSERT_EQ(CUDA_SUCCESS, cuMemFree(neighbour));
    if (bytes < kMiB) continue;  // small memory shares a frame, which its neighbours keep
    EXPECT_EQ(30, run("ipc " + hex(handle) + " " + std::to_string(bytes) + " 5"))
        << "a handle of freed memory opens nothing";
  }
}

TEST_F(ProcessTest, AnIpcHandleIsForOtherProcesses) {
  CUipcMemHandle handle;
  ASSERT_EQ(CUDA_SUCCESS, cuIpcGetMemHandle(&handle, words_));
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
            cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
            cuIpcOpenMemHandle(&pointer, CUipcMemHandle{}, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, 4096));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(words_));
}

TEST_F(ProcessTest, AnExitGivesEverythingBack) {
  const std::size_t before = free_bytes();
  EXPECT_EQ(0, run("leave"));
  EXPECT_EQ(before, free_bytes());
}

TEST_F(ProcessTest, AnInjectedFailureMeetsItsCall) {
  const std::string spec = getenv("PLEXRL_SIMGPU");
  const std::string prefix = "PLEXRL_SIMGPU=" + spec + ",fail=cuMemAlloc@1:2 ";
  const int status = std::system((prefix + peer("leave")).c_str());
  EXPECT_EQ(50, WEXITSTATUS(status)) << "the step of cuMemAlloc";
}

TEST_F(ProcessTest, OtherFiguresForOurNameFailAtInit) {
  const std::string spec = getenv("PLEXRL_SIMGPU");
  const int status =
      std::system(("PLEXRL_SIMGPU=" + spec + ",sms=9 " + peer("leave") + " 2>/dev/null").c_str());
  EXPECT_EQ(1, WEXITSTATUS(status)) << "the step of cuInit";
}

TEST_F(ProcessTest, TheDeviceLogHasALineForEachPieceOfWork) {
  char path[] = "/tmp/plexrl-simgpu-log-XXXXXX";
  close(mkstemp(path));
  const std::string prefix =
      std::string("PLEXRL_SIMGPU=") + getenv("PLEXRL_SIMGPU") + ",log=" + path;
  CUipcMemHandle handle;
  CUdeviceptr pointer = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&pointer, 3 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(pointer, 1, 3 * kMiB));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  ASSERT_EQ(CUDA_SUCCESS, cuIpcGetMemHandle(&handle, pointer));
  ASSERT_EQ(0, std::system((prefix + " " + peer("ipc " + hex(handle) + " 1000 1")).c_str()));
  std::ifstream file(path);
  std::vector<std::string> kinds;
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line);
    kinds.push_back(entry["kind"]);
    EXPECT_EQ(1000, entry["bytes"]);
    EXPECT_LE(entry["start_ns"], entry["end_ns"]);
    EXPECT_GT(entry["pid"], 0);
  }
  EXPECT_EQ((std::vector<std::string>{"d2h", "h2d"}), kinds);
  unlink(path);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFree(pointer));
}

TEST_F(ProcessTest, AKilledPeersMemoryComesBack) {
  const std::size_t before = free_bytes();
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  std::string path = PLEXRL_TEST_PEER, what = "hold", bytes = std::to_string(20 * kMiB);
  char* arguments[] = {path.data(), what.data(), bytes.data(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(0, posix_spawn(&child, path.c_str(), &actions, nullptr, arguments, environ));
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char said[8] = "";
  ASSERT_EQ(5, read(ends[0], said, 5));
  EXPECT_EQ(before - 22 * kMiB, free_bytes()) << "20 MiB and 2 MiB of context";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  EXPECT_EQ(before, free_bytes());
}

}  // namespace
}  // namespace plexrl::simgpu
