// Processes that share a simulated machine: each runs process_peer in a process of its own.

#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/simgpu/api_fixture.h"
#include "tests/unit/simgpu/peer.h"

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

TEST_F(ProcessTest, AnExecGivesBackWhatTheProgramBeforeItHad) {
  const std::size_t before = free_bytes();
  EXPECT_EQ(0, run("lives " + std::to_string(before / 2) + " 3"));
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
  Peer child({"hold", std::to_string(20 * kMiB)});
  ASSERT_EQ("held", child.said());
  EXPECT_EQ(before - 22 * kMiB, free_bytes()) << "20 MiB and 2 MiB of context";
  child.kill_now();
  EXPECT_EQ(before, free_bytes());
}

class IpcEventTest : public ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    ASSERT_EQ(CUDA_SUCCESS,
              cuEventCreate(&event_, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    ASSERT_EQ(CUDA_SUCCESS, cuIpcGetEventHandle(&handle_, event_));
  }
  CUevent event_ = nullptr;
  CUipcEventHandle handle_{};
};

TEST_F(IpcEventTest, OrdersTheStreamsOfTwoProcessesBothWays) {
  CUdeviceptr gate = 0, shared = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&gate, 4));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&shared, 4));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(gate, 0, 1));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32(shared, 0, 1));
  ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitValue32(stream_, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8Async(shared, 7, 1, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuEventRecord(event_, stream_));
  CUipcMemHandle memory;
  ASSERT_EQ(CUDA_SUCCESS, cuIpcGetMemHandle(&memory, shared));
  Peer peer({"event", hex(handle_), hex(memory)});
  ASSERT_EQ("opened", peer.said()) << "the peer's stream waits for the event";
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(event_));
  CUstream opener = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&opener, CU_STREAM_NON_BLOCKING));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWriteValue32(opener, gate, 1, 0));
  EXPECT_EQ(0, peer.status());
  EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(event_)) << "the peer's record";
  EXPECT_TRUE(is_filled(shared, 1, 8));
  EXPECT_EQ(CUDA_SUCCESS, cuEventDestroy(event_));
  EXPECT_EQ(60, run("event " + hex(handle_) + " " + hex(memory)))
      << "a handle of a destroyed event opens nothing";
}

TEST_F(IpcEventTest, ARecordOfAKilledProcessHoldsNobodyUp) {
  EXPECT_EQ(CUDA_SUCCESS, cuEventQuery(event_)) << "never recorded";
  Peer peer({"record", hex(handle_)});
  ASSERT_EQ("recorded", peer.said());
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(event_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(stream_, event_, 0));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream_));
  peer.kill_now();
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(event_));
}

TEST_F(IpcEventTest, AnExecGivesMemoryBackAndHoldsNobodyUpWhileTheNextProgramAndAChildRun) {
  const std::size_t before = free_bytes();
  Peer peer({"become", hex(handle_)});
  ASSERT_EQ("recorded", peer.said());
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(stream_, event_, 0));
  ASSERT_EQ("another", peer.said());
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(event_));
  EXPECT_EQ(before, free_bytes());
}

TEST_F(IpcEventTest, OnlyEventsMadeForItHaveHandlesAndOnlyForOthers) {
  CUipcEventHandle handle{};
  CUevent plain = nullptr, opened = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&handle, plain));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(nullptr, event_));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&handle, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&opened, handle_));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&opened, CUipcEventHandle{}));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuIpcOpenEventHandle(nullptr, handle_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&plain, CU_EVENT_INTERPROCESS))
      << "such an event has no timing";
}

class SharedPoolTest : public ProcessTest {
 protected:
  static CUmemPoolProps properties(CUmemAllocationHandleType type) {
    CUmemPoolProps result{};
    result.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    result.handleTypes = type;
    result.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    return result;
  }
  void SetUp() override {
    ProcessTest::SetUp();
    const CUmemPoolProps shared = properties(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ASSERT_EQ(CUDA_SUCCESS, cuMemPoolCreate(&pool_, &shared));
  }
  CUmemoryPool pool_ = nullptr;
};

TEST_F(SharedPoolTest, AllocationsAreReachedAtTheirPlaceAndGoWhenBothHaveFreedThem) {
  const std::size_t before = free_bytes();
  CUdeviceptr neighbour = 0, pointer = 0;
  // The second begins beyond the first frame of what the pool has reserved.
  const std::size_t bytes = 3 * kMiB + 100;
  CUdeviceptr whole = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&whole, 8 * kMiB, pool_, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(whole, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&neighbour, bytes, pool_, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, bytes, pool_, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8Async(neighbour, 99, bytes, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8Async(pointer, 5, bytes, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  int descriptor = -1;
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolExportToShareableHandle(
                              &descriptor, pool_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const int inherited = dup(descriptor);  // without close-on-exec
  CUmemPoolPtrExportData data;
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolExportPointer(&data, pointer));
  const std::string arguments =
      "pool " + std::to_string(inherited) + " " + hex(data) + " " + std::to_string(bytes);
  EXPECT_EQ(0, run(arguments + " 5"));
  EXPECT_TRUE(is_filled(pointer, bytes, 6));
  EXPECT_TRUE(is_filled(neighbour, bytes, 99));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(pointer, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(neighbour, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(before, free_bytes());
  EXPECT_EQ(93, run(arguments + " 6")) << "what was freed can't be imported";
  close(inherited);
  close(descriptor);
  EXPECT_EQ(CUDA_SUCCESS, cuMemPoolDestroy(pool_));
}

TEST_F(SharedPoolTest, OnlyWhatWasMadeForItIsShared) {
  const CUmemPoolProps plain_properties = properties(CU_MEM_HANDLE_TYPE_NONE);
  CUmemoryPool plain = nullptr, imported = nullptr;
  CUmemPoolPtrExportData data{};
  CUdeviceptr pointer = 0, shared = 0;
  int descriptor = -1;
  constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolCreate(&plain, &plain_properties));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, 64, plain, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&shared, 64, pool_, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolExportPointer(&data, shared));
  const auto invalid = [](CUresult result) { EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, result); };
  invalid(cuMemPoolExportToShareableHandle(&descriptor, plain, kDescriptor, 0));
  invalid(cuMemPoolExportToShareableHandle(nullptr, pool_, kDescriptor, 0));
  invalid(cuMemPoolExportToShareableHandle(&descriptor, pool_, CU_MEM_HANDLE_TYPE_WIN32, 0));
  invalid(cuMemPoolExportToShareableHandle(&descriptor, pool_, kDescriptor, 1));
  EXPECT_EQ(-1, descriptor);
  invalid(cuMemPoolExportPointer(&data, pointer));
  invalid(cuMemPoolExportPointer(&data, words_));
  invalid(cuMemPoolExportPointer(nullptr, shared));
  invalid(cuMemPoolImportPointer(&pointer, pool_, &data));
  invalid(
      cuMemPoolImportFromShareableHandle(&imported, reinterpret_cast<void*>(0L), kDescriptor, 0));
  invalid(cuMemPoolImportFromShareableHandle(nullptr, nullptr, kDescriptor, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolDestroy(plain));
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolDestroy(pool_));
}

}  // namespace
}  // namespace plexrl::simgpu
