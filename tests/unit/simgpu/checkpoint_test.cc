// Checkpoints of process_peer by this process, which is what a checkpointing tool is.

#include <string>
#include <vector>

#include "tests/unit/simgpu/api_fixture.h"
#include "tests/unit/simgpu/peer.h"

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kPeerBytes = 10 * kMiB;
constexpr unsigned kIpcFlags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

class CheckpointTest : public DriverTest {
 protected:
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemGetInfo(&free, &total));
    return free;
  }
  static CUprocessState state(int pid) {
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    EXPECT_EQ(CUDA_SUCCESS, cuCheckpointProcessGetState(pid, &state));
    return state;
  }
  static void checkpoint(int pid) {
    ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessLock(pid, nullptr));
    ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessCheckpoint(pid, nullptr));
  }
  static void restore(int pid) {
    ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessRestore(pid, nullptr));
    ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessUnlock(pid, nullptr));
  }
  /// A checkpoint that the driver doesn't support, of a process that runs.
  static void expect_failure(int pid) {
    ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessLock(pid, nullptr));
    EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessCheckpoint(pid, nullptr));
    EXPECT_EQ(CU_PROCESS_STATE_FAILED, state(pid));
  }
  static Peer obedient() { return Peer({"obeys", std::to_string(kPeerBytes)}); }
  static CUipcMemHandle exported(const Peer& peer) {
    peer.say("export");
    const auto handle = from_hex<CUipcMemHandle>(peer.said());
    EXPECT_EQ("done", peer.said());
    return handle;
  }
  /// Takes all free memory, so that nothing comes back to the frames it had, and fills it.
  void scribble_over_all_free(std::vector<CUdeviceptr>* taken) {
    for (CUdeviceptr pointer = 0; cuMemAlloc(&pointer, 2 * kMiB) == CUDA_SUCCESS;) {
      ASSERT_EQ(CUDA_SUCCESS, cuMemsetD8(pointer, 0xee, 2 * kMiB));
      taken->push_back(pointer);
    }
    ASSERT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
  }
};

TEST_F(CheckpointTest, AllOfAProcessLeavesTheDeviceAndComesBackWithItsBytes) {
  const std::size_t before = free_bytes();
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  EXPECT_LT(free_bytes(), before - kPeerBytes);
  checkpoint(peer.pid());
  EXPECT_EQ(CU_PROCESS_STATE_CHECKPOINTED, state(peer.pid()));
  EXPECT_EQ(before, free_bytes()) << "the context went too";
  std::vector<CUdeviceptr> taken;
  scribble_over_all_free(&taken);
  ASSERT_FALSE(taken.empty());
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuCheckpointProcessRestore(peer.pid(), nullptr));
  EXPECT_EQ(CU_PROCESS_STATE_CHECKPOINTED, state(peer.pid()));
  // The first free frames stay taken: what comes back comes to other places.
  for (std::size_t i = 1; i < taken.size(); ++i) ASSERT_EQ(CUDA_SUCCESS, cuMemFree(taken[i]));
  restore(peer.pid());
  EXPECT_EQ(CU_PROCESS_STATE_RUNNING, state(peer.pid()));
  peer.say("add");  // it compares each byte first
  EXPECT_EQ("done", peer.said());
  checkpoint(peer.pid());
  restore(peer.pid());
  peer.say("add");
  EXPECT_EQ("done", peer.said());
}

TEST_F(CheckpointTest, ALockedProcessStopsAtItsNextCall) {
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessLock(peer.pid(), nullptr));
  EXPECT_EQ(CU_PROCESS_STATE_LOCKED, state(peer.pid()));
  peer.say("add");
  ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessCheckpoint(peer.pid(), nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessRestore(peer.pid(), nullptr));
  EXPECT_FALSE(peer.has_said_something());
  ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessUnlock(peer.pid(), nullptr));
  EXPECT_EQ("done", peer.said());
}

TEST_F(CheckpointTest, ALockThatComesTooLateLeavesTheProcessRunning) {
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  peer.say("hang");
  ASSERT_EQ("done", peer.said());
  CUcheckpointLockArgs args{};
  args.timeoutMs = 20;
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuCheckpointProcessLock(peer.pid(), &args));
  EXPECT_EQ(CU_PROCESS_STATE_RUNNING, state(peer.pid()));
  peer.say("let_go");
  ASSERT_EQ("done", peer.said());
  EXPECT_EQ(CUDA_SUCCESS, cuCheckpointProcessLock(peer.pid(), nullptr)) << "its work has ended";
  EXPECT_EQ(CUDA_SUCCESS, cuCheckpointProcessUnlock(peer.pid(), nullptr));
}

TEST_F(CheckpointTest, AStoppedProcessIsNotWaitedForLongerThanAsked) {
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  kill(peer.pid(), SIGSTOP);
  siginfo_t stopped{};
  ASSERT_EQ(0, waitid(P_PID, static_cast<id_t>(peer.pid()), &stopped, WSTOPPED | WNOWAIT));
  CUcheckpointLockArgs args{};
  args.timeoutMs = 20;
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuCheckpointProcessLock(peer.pid(), &args));
  kill(peer.pid(), SIGCONT);
  peer.say("add");
  EXPECT_EQ("done", peer.said()) << "the order was taken back";
}

TEST_F(CheckpointTest, EachStepNeedsTheStateBeforeIt) {
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  const int pid = peer.pid();
  const auto expect_refused = [](CUresult result) { EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, result); };
  expect_refused(cuCheckpointProcessCheckpoint(pid, nullptr));
  expect_refused(cuCheckpointProcessRestore(pid, nullptr));
  expect_refused(cuCheckpointProcessUnlock(pid, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessLock(pid, nullptr));
  expect_refused(cuCheckpointProcessLock(pid, nullptr));
  expect_refused(cuCheckpointProcessRestore(pid, nullptr));
  ASSERT_EQ(CUDA_SUCCESS, cuCheckpointProcessCheckpoint(pid, nullptr));
  expect_refused(cuCheckpointProcessLock(pid, nullptr));
  expect_refused(cuCheckpointProcessCheckpoint(pid, nullptr));
  expect_refused(cuCheckpointProcessUnlock(pid, nullptr));
  restore(pid);
  peer.say("add");
  EXPECT_EQ("done", peer.said());
}

TEST_F(CheckpointTest, ManagedMemoryMakesTheProcessFail) {
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  peer.say("managed");
  ASSERT_EQ("done", peer.said());
  expect_failure(peer.pid());
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(peer.pid(), nullptr));
  peer.say("add");
  EXPECT_EQ("step 10: error 999", peer.said()) << "its contexts are lost";
}

TEST_F(CheckpointTest, MemoryOfAnotherProcessMakesTheProcessFail) {
  CUipcMemHandle handle;
  ASSERT_EQ(CUDA_SUCCESS, cuIpcGetMemHandle(&handle, words_));
  Peer peer({"opens", hex(handle)});
  ASSERT_EQ("ready", peer.said());
  expect_failure(peer.pid());
}

TEST_F(CheckpointTest, MemoryThatAnotherProcessHasOpenMakesItsOwnerFail) {
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  CUdeviceptr opened = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuIpcOpenMemHandle(&opened, exported(peer), kIpcFlags));
  expect_failure(peer.pid());
  unsigned char byte = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&byte, opened, 1));
  EXPECT_EQ(5, byte) << "who has it open keeps it";
  EXPECT_EQ(CUDA_SUCCESS, cuIpcCloseMemHandle(opened));
}

TEST_F(CheckpointTest, MemoryWithADescriptorMakesTheProcessFail) {
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  peer.say("describe");
  ASSERT_EQ("done", peer.said());
  expect_failure(peer.pid());
}

TEST_F(CheckpointTest, AHandleOpensNothingWhileItsMemoryIsAway) {
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  const CUipcMemHandle handle = exported(peer);
  checkpoint(peer.pid());
  CUdeviceptr opened = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle(&opened, handle, kIpcFlags));
  restore(peer.pid());
  ASSERT_EQ(CUDA_SUCCESS, cuIpcOpenMemHandle(&opened, handle, kIpcFlags));
  unsigned char byte = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&byte, opened, 1));
  EXPECT_EQ(5, byte);
  EXPECT_EQ(CUDA_SUCCESS, cuIpcCloseMemHandle(opened));
}

TEST_F(CheckpointTest, AProcessThatDiesWhileCheckpointedLeavesNothing) {
  const std::size_t before = free_bytes();
  Peer peer = obedient();
  ASSERT_EQ("ready", peer.said());
  const int pid = peer.pid();
  checkpoint(pid);
  peer.kill_now();
  EXPECT_EQ(before, free_bytes());
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(pid, nullptr));
}

TEST_F(CheckpointTest, AProcessMayCheckpointItself) {
  ASSERT_EQ(CUDA_SUCCESS, launch(fill_, 3, stream_));
  checkpoint(getpid());
  EXPECT_EQ(CU_PROCESS_STATE_CHECKPOINTED, state(getpid()));
  restore(getpid());
  EXPECT_EQ(all(3), words()) << "the work that was under way ended first";
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 2, stream_));
  EXPECT_EQ(all(5), words()) << "modules and streams are what they were";
}

TEST_F(CheckpointTest, WhatIsNotPossibleIsRefusedAtTheCall) {
  CUprocessState any{};
  int thread = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(getppid(), &any))
      << "uses no GPU";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(getpid(), nullptr));
  EXPECT_EQ(CUDA_SUCCESS, cuCheckpointProcessGetRestoreThreadId(getpid(), &thread));
  EXPECT_EQ(0, access(("/proc/self/task/" + std::to_string(thread)).c_str(), F_OK));
  CUcheckpointLockArgs lock{};
  lock.reserved1[6] = 1;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessLock(getpid(), &lock));
  CUcheckpointRestoreArgs restore{};
  CUcheckpointGpuPair pair{};
  pair.newUuid.bytes[0] = 1;
  restore.gpuPairs = &pair;
  restore.gpuPairsCount = 1;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessRestore(getpid(), &restore))
      << "onto another GPU";
}

}  // namespace
}  // namespace plexrl::simgpu
