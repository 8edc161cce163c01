// The simulated NCCL against a plain model, over threads and over processes, and what becomes of
// ranks whose peers don't come.
#include <cuda.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "tests/unit/simgpu/api_fixture.h"
#include "tests/unit/simgpu/nccl_model.h"

namespace plexrl::simgpu {
namespace {

constexpr int kGpus = 4;

ncclUniqueId fresh_id() {
  ncclUniqueId id;
  EXPECT_EQ(ncclSuccess, ncclGetUniqueId(&id));
  return id;
}

/// Runs `body` as each of `ranks` ranks, each in a thread of its own with a device of its own.
void in_threads(int ranks, const std::function<void(NcclRank&)>& body) {
  const ncclUniqueId id = fresh_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      NcclRank me(id, ranks, rank, rank);
      if (me.error.empty()) body(me);
      EXPECT_EQ("", me.error) << "rank " << rank;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> floats(CUdeviceptr at, std::size_t count) {
  std::vector<float> host(count);
  EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(host.data(), at, count * sizeof(float)));
  return host;
}

void set_floats(CUdeviceptr at, const std::vector<float>& host) {
  EXPECT_EQ(CUDA_SUCCESS, cuMemcpyHtoD(at, host.data(), host.size() * sizeof(float)));
}

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

/// A rank in a process of its own.
class Peer {
 public:
  Peer(const ncclUniqueId& id, int ranks, int rank, const char* what) {
    std::string hex;
    for (int i = 0; i < 16; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(id.internal[i]));
      hex += digits;
    }
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      close(ends[1]);
      execl(PLEXRL_TEST_NCCL_RANK, PLEXRL_TEST_NCCL_RANK, hex.c_str(),
            std::to_string(ranks).c_str(), std::to_string(rank).c_str(), what, nullptr);
      _exit(127);
    }
    close(ends[1]);
    out_ = ends[0];
  }
  ~Peer() {
    if (pid_ > 0) end(SIGKILL);
    close(out_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void await_line() const {
    char byte = 0;
    while (read(out_, &byte, 1) == 1 && byte != '\n') {
    }
  }
  /// Its wait status.
  int end(int signal) {
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

class NcclTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // The library reads it too, and the processes that the tests start.
    use_own_device("nccl", ",free_delay=0,gpus=4");
  }
};

class NcclModelTest : public NcclTest, public testing::WithParamInterface<int> {};

TEST_P(NcclModelTest, EveryCollectiveOfThreadsGivesWhatTheModelSays) {
  in_threads(GetParam(), [](NcclRank& me) {
    for (const Collective& c : all_collectives(me.ranks)) ASSERT_EQ("", me.run(c));
  });
}

TEST_P(NcclModelTest, EveryCollectiveOfProcessesGivesWhatTheModelSays) {
  const ncclUniqueId id = fresh_id();
  std::vector<std::unique_ptr<Peer>> peers;
  for (int rank = 0; rank < GetParam(); ++rank)
    peers.push_back(std::make_unique<Peer>(id, GetParam(), rank, "model"));
  for (const auto& peer : peers) EXPECT_EQ(0, peer->end(0));
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclModelTest, testing::Values(2, kGpus));

TEST_F(NcclTest, SumsAreMadeInTheOrderOfRanksAndRoundedAtEachStep) {
  // In this order the small ones are lost one by one; in another, or in a wider type, they count.
  in_threads(kGpus, [](NcclRank& me) {
    const CUdeviceptr word = me.buffer(4);
    set_floats(word, {me.rank == 0 ? 16777216.0f : 1.0f});
    ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(word), pointer(word), 1, ncclFloat32, ncclSum,
                                         me.comm, me.stream));
    ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
    EXPECT_EQ(16777216.0f, floats(word, 1)[0]);
    const std::uint16_t half = me.rank == 0 ? 0x6800 : 0x3c00;  // 2048 and 1
    std::uint16_t sum = 0;
    ASSERT_EQ(CUDA_SUCCESS, cuMemcpyHtoD(word, &half, 2));
    ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(word), pointer(word), 1, ncclFloat16, ncclSum,
                                         me.comm, me.stream));
    ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
    ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&sum, word, 2));
    EXPECT_EQ(0x6800, sum);
  });
}

TEST_F(NcclTest, AFactorMultipliesWhatItsRankGives) {
  in_threads(2, [](NcclRank& me) {
    const CUdeviceptr words = me.buffer(16);
    float factor = me.rank == 0 ? 10.0f : 100.0f;
    set_floats(words, {1.0f, 2.0f, factor, 0.0f});
    for (const auto where : {ncclScalarHostImmediate, ncclScalarDevice}) {
      ncclRedOp_t op;
      void* const scalar = where == ncclScalarDevice ? pointer(words + 8) : &factor;
      ASSERT_EQ(ncclSuccess, ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat32, where, me.comm));
      ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(words), pointer(words + 12), 1, ncclFloat32, op,
                                           me.comm, me.stream));
      ASSERT_EQ(ncclSuccess, ncclRedOpDestroy(op, me.comm));
      ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
      EXPECT_EQ(110.0f, floats(words, 4)[3]);
    }
  });
}

TEST_F(NcclTest, InPlaceGivesTheSame) {
  in_threads(2, [](NcclRank& me) {
    const auto rank = static_cast<std::size_t>(me.rank);
    const CUdeviceptr words = me.buffer(16);
    set_floats(words, {1.0f, 2.0f, 3.0f, 4.0f});
    ASSERT_EQ(ncclSuccess, ncclReduceScatter(pointer(words), pointer(words + 8 * rank), 2,
                                             ncclFloat32, ncclSum, me.comm, me.stream));
    ASSERT_EQ(ncclSuccess, ncclAllGather(pointer(words + 8 * rank), pointer(words), 2, ncclFloat32,
                                         me.comm, me.stream));
    ASSERT_EQ(ncclSuccess, ncclBcast(pointer(words), 1, ncclFloat32, 1, me.comm, me.stream));
    ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
    EXPECT_EQ((std::vector<float>{2.0f, 4.0f, 6.0f, 8.0f}), floats(words, 4));
  });
}

TEST_F(NcclTest, SendsAndReceivesOfAGroupGoOnSideBySide) {
  constexpr std::size_t kCount = 200'000;  // more than lies between two ranks at once
  in_threads(kGpus, [](NcclRank& me) {
    const CUdeviceptr from = me.buffer(kCount * 4), to = me.buffer(kCount * 4 * kGpus);
    set_floats(from, std::vector<float>(kCount, static_cast<float>(me.rank + 1)));
    ASSERT_EQ(ncclSuccess, ncclGroupStart());
    for (int peer = 0; peer < me.ranks; ++peer) {  // itself too
      ASSERT_EQ(ncclSuccess,
                ncclSend(pointer(from), kCount, ncclFloat32, peer, me.comm, me.stream));
      ASSERT_EQ(ncclSuccess, ncclRecv(pointer(to + static_cast<std::size_t>(peer) * kCount * 4),
                                      kCount, ncclFloat32, peer, me.comm, me.stream));
    }
    ASSERT_EQ(ncclSuccess, ncclGroupEnd());
    ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
    const std::vector<float> got = floats(to, kCount * kGpus);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(static_cast<float>(i / kCount + 1), got[i]) << i;
  });
}

TEST_F(NcclTest, OneThreadMayHaveAllRanks) {
  ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  ncclComm_t comms[kGpus];
  ASSERT_EQ(ncclSuccess, ncclCommInitAll(comms, kGpus, nullptr));
  CUcontext contexts[kGpus];
  CUdeviceptr words[kGpus];
  for (int i = 0; i < kGpus; ++i) {
    int device = -1, rank = -1, count = 0;
    ASSERT_EQ(ncclSuccess, ncclCommCuDevice(comms[i], &device));
    ASSERT_EQ(ncclSuccess, ncclCommUserRank(comms[i], &rank));
    ASSERT_EQ(ncclSuccess, ncclCommCount(comms[i], &count));
    EXPECT_EQ(device, i);
    EXPECT_EQ(rank, i);
    EXPECT_EQ(count, kGpus);
    ASSERT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&contexts[i], i));
    ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(contexts[i]));
    ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&words[i], 4));
    set_floats(words[i], {1.0f});
  }
  ASSERT_EQ(ncclSuccess, ncclGroupStart());
  for (int i = 0; i < kGpus; ++i) {
    for (int times = 0; times < 2; ++times) {  // two in one kernel
      ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(words[i]), pointer(words[i]), 1, ncclFloat32,
                                           ncclSum, comms[i], nullptr));
    }
  }
  ASSERT_EQ(ncclSuccess, ncclGroupEnd());
  for (int i = 0; i < kGpus; ++i) {
    ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(contexts[i]));
    EXPECT_EQ(16.0f, floats(words[i], 1)[0]);
    ASSERT_EQ(CUDA_SUCCESS, cuMemFree(words[i]));
    ASSERT_EQ(ncclSuccess, ncclCommDestroy(comms[i]));
    ASSERT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(i));
  }
}

TEST_F(NcclTest, SplitAndShrunkCommunicatorsAreTheRanksTheySay) {
  in_threads(kGpus, [](NcclRank& me) {
    ncclComm_t half = nullptr;
    // Odd and even ranks, each in the reverse order.
    ASSERT_EQ(ncclSuccess, ncclCommSplit(me.comm, me.rank % 2, -me.rank, &half, nullptr));
    int rank = -1, count = 0;
    ASSERT_EQ(ncclSuccess, ncclCommUserRank(half, &rank));
    ASSERT_EQ(ncclSuccess, ncclCommCount(half, &count));
    EXPECT_EQ(count, 2);
    EXPECT_EQ(rank, me.rank < 2 ? 1 : 0);
    const CUdeviceptr word = me.buffer(4);
    set_floats(word, {static_cast<float>(me.rank)});
    ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(word), pointer(word), 1, ncclFloat32, ncclSum,
                                         half, me.stream));
    ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
    EXPECT_EQ(me.rank % 2 == 0 ? 2.0f : 4.0f, floats(word, 1)[0]);
    ncclComm_t none = half;
    ASSERT_EQ(ncclSuccess, ncclCommSplit(me.comm, me.rank == 0 ? -1 : 7, 0, &none, nullptr));
    EXPECT_EQ(me.rank == 0, none == nullptr);
    ASSERT_EQ(ncclSuccess, ncclCommDestroy(none));  // of none it does nothing
    ASSERT_EQ(ncclSuccess, ncclCommDestroy(half));
    if (me.rank == 2) return;
    int without[] = {2};
    ncclComm_t fewer = nullptr;
    ASSERT_EQ(ncclSuccess, ncclCommShrink(me.comm, without, 1, &fewer, nullptr, 0));
    ASSERT_EQ(ncclSuccess, ncclCommUserRank(fewer, &rank));
    EXPECT_EQ(rank, me.rank == 3 ? 2 : me.rank);
    ASSERT_EQ(ncclSuccess, ncclCommDestroy(fewer));
  });
}

TEST_F(NcclTest, ACapturedCollectiveRunsWithEachLaunchOfItsGraph) {
  in_threads(2, [](NcclRank& me) {
    const CUdeviceptr word = me.buffer(4);
    set_floats(word, {1.0f});
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(me.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(word), pointer(word), 1, ncclFloat32, ncclSum,
                                         me.comm, me.stream));
    ASSERT_EQ(CUDA_SUCCESS, cuStreamEndCapture(me.stream, &graph));
    ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&executable, graph, 0));
    ASSERT_EQ(CUDA_SUCCESS, cuGraphDestroy(graph));
    for (int i = 0; i < 3; ++i) ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(executable, me.stream));
    ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
    EXPECT_EQ(8.0f, floats(word, 1)[0]);
    ASSERT_EQ(CUDA_SUCCESS, cuGraphExecDestroy(executable));
  });
}

TEST_F(NcclTest, KernelsOnSeveralStreamsKeepTheOrderOfTheirCalls) {
  in_threads(2, [](NcclRank& me) {
    CUstream other = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr words = me.buffer(8);
    set_floats(words, {1.0f, 5.0f});
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(words), pointer(words), 1, ncclFloat32,
                                           i % 2 == 0 ? ncclSum : ncclAvg, me.comm,
                                           i % 2 == 0 ? other : me.stream));
    }
    ASSERT_EQ(ncclSuccess, ncclGroupStart());
    for (const CUstream stream : {me.stream, other}) {
      ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(words + 4), pointer(words + 4), 1, ncclFloat32,
                                           ncclSum, me.comm, stream));
    }
    ASSERT_EQ(ncclSuccess, ncclGroupEnd());
    ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(other));
    EXPECT_EQ((std::vector<float>{32.0f, 20.0f}), floats(words, 2));
    ASSERT_EQ(CUDA_SUCCESS, cuStreamDestroy(other));
  });
}

TEST_F(NcclTest, ACommunicatorThatDoesNotBlockIsInProgressUntilAllHaveCome) {
  struct Config {  // what nccl.h's NCCL_CONFIG_INITIALIZER begins with
    ncclConfig_t common;
  };
  const ncclUniqueId id = fresh_id();
  const auto config = [] { return Config{{sizeof(Config), 0xcafebeef, 22809, 0}}; };
  ASSERT_EQ(CUDA_SUCCESS, cuInit(0));
  CUcontext contexts[2];
  ncclComm_t comms[2];
  ncclResult_t state = ncclSuccess;
  for (int rank = 0; rank < 2; ++rank) {
    Config mine = config();
    ASSERT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&contexts[rank], rank));
    ASSERT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(contexts[rank]));
    ASSERT_EQ(ncclInProgress, ncclCommInitRankConfig(&comms[rank], 2, id, rank, &mine.common));
    if (rank != 0) break;
    ASSERT_EQ(ncclSuccess, ncclCommGetAsyncError(comms[0], &state));
    EXPECT_EQ(ncclInProgress, state);
    EXPECT_EQ(ncclInvalidArgument,
              ncclAllReduce(pointer(8), pointer(8), 1, ncclFloat32, ncclSum, comms[0], nullptr));
  }
  for (const ncclComm_t comm : comms) {
    do {
      std::this_thread::yield();
      ASSERT_EQ(ncclSuccess, ncclCommGetAsyncError(comm, &state));
    } while (state == ncclInProgress);
    EXPECT_EQ(ncclSuccess, state);
    ASSERT_EQ(ncclSuccess, ncclCommDestroy(comm));
  }
  // One that nobody else comes to is ended by an abort.
  Config alone = config();
  ASSERT_EQ(ncclInProgress, ncclCommInitRankConfig(&comms[0], 2, fresh_id(), 0, &alone.common));
  ASSERT_EQ(ncclSuccess, ncclCommAbort(comms[0]));
  for (int rank = 0; rank < 2; ++rank) ASSERT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(rank));
}

TEST_F(NcclTest, WrongCallsAreRefusedAndMakeTheirGroupFail) {
  in_threads(2, [](NcclRank& me) {
    const CUdeviceptr word = me.buffer(4);
    void* const at = pointer(word);
    EXPECT_EQ(ncclInvalidArgument, ncclAllReduce(at, at, 1, static_cast<ncclDataType_t>(40),
                                                 ncclSum, me.comm, me.stream));
    EXPECT_EQ(ncclInvalidArgument,
              ncclAllReduce(at, at, 1, ncclFloat8e4m3, ncclSum, me.comm, me.stream));
    EXPECT_EQ(ncclInvalidArgument, ncclAllReduce(at, at, 1, ncclFloat32,
                                                 static_cast<ncclRedOp_t>(9), me.comm, me.stream));
    EXPECT_EQ(ncclInvalidArgument, ncclBroadcast(at, at, 1, ncclFloat32, 2, me.comm, me.stream));
    EXPECT_EQ(ncclInvalidArgument,
              ncclAllReduce(nullptr, at, 1, ncclFloat32, ncclSum, me.comm, me.stream));
    EXPECT_EQ(ncclInvalidArgument,
              ncclAllReduce(at, at, 1, ncclFloat32, ncclSum, nullptr, me.stream));
    EXPECT_EQ(ncclInvalidUsage, ncclGroupEnd());
    ASSERT_EQ(ncclSuccess, ncclGroupStart());
    EXPECT_EQ(ncclSuccess, ncclAllReduce(at, at, 1, ncclFloat32, ncclSum, me.comm, me.stream));
    EXPECT_EQ(ncclInvalidArgument, ncclRecv(at, 1, ncclFloat32, 5, me.comm, me.stream));
    EXPECT_EQ(ncclInvalidArgument, ncclGroupEnd());
    EXPECT_EQ(me.ranks, me.count_ranks()) << "nothing of the group was done";
  });
}

TEST_F(NcclTest, TwoRanksOnOneDeviceAreRefused) {
  const ncclUniqueId id = fresh_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const NcclRank me(id, 2, rank, 0);
      EXPECT_EQ("ncclCommInitRank", me.error);
      EXPECT_EQ(nullptr, me.comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Until the communicator has an error.
ncclResult_t await_error(ncclComm_t comm) {
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (ncclCommGetAsyncError(comm, &error) != ncclSuccess) return ncclInternalError;
  }
  return error;
}

TEST_F(NcclTest, RanksThatMeanDifferentCollectivesGetAnErrorAndAnAbortEndsTheirKernels) {
  in_threads(2, [](NcclRank& me) {
    const CUdeviceptr words = me.buffer(16);
    ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(words), pointer(words), me.rank == 0 ? 1 : 2,
                                         ncclFloat32, ncclSum, me.comm, me.stream));
    const ncclResult_t error = await_error(me.comm);
    EXPECT_TRUE(error == ncclInvalidUsage || error == ncclRemoteError) << error;
    EXPECT_NE("", std::string(ncclGetLastError(me.comm)));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(me.stream));
    ASSERT_EQ(ncclSuccess, ncclCommAbort(me.comm));
    me.comm = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
  });
}

TEST_F(NcclTest, ARankThatIsKilledIsAnErrorForTheOthersAndNoHang) {
  const ncclUniqueId id = fresh_id();
  Peer first(id, 3, 1, "killed"), second(id, 3, 2, "killed");
  NcclRank me(id, 3, 0, 0);
  ASSERT_EQ("", me.error);
  ASSERT_EQ(3, me.count_ranks());
  first.await_line();
  second.await_line();
  const CUdeviceptr word = me.buffer(4);
  ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(word), pointer(word), 1, ncclFloat32, ncclSum,
                                       me.comm, me.stream));
  ncclResult_t error = ncclInternalError;
  ASSERT_EQ(ncclSuccess, ncclCommGetAsyncError(me.comm, &error));
  EXPECT_EQ(ncclSuccess, error) << "its peers live";
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(me.stream));
  first.end(SIGKILL);
  EXPECT_EQ(ncclRemoteError, await_error(me.comm));
  EXPECT_EQ(ncclRemoteError, ncclAllReduce(pointer(word), pointer(word), 1, ncclFloat32, ncclSum,
                                           me.comm, me.stream));
  ASSERT_EQ(ncclSuccess, ncclCommAbort(me.comm));
  me.comm = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST_F(NcclTest, AKernelThatWaitsForItsPeersHoldsNoCore) {
  std::atomic<bool> may_come{false};
  in_threads(2, [&](NcclRank& me) {
    const CUdeviceptr word = me.buffer(4);
    set_floats(word, {1.0f});
    if (me.rank == 1) {
      while (!may_come) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(ncclSuccess, ncclAllReduce(pointer(word), pointer(word), 1, ncclFloat32, ncclSum,
                                         me.comm, me.stream));
    if (me.rank == 0) {
      constexpr double kWait = 0.3;
      const double before = cpu_seconds();
      std::this_thread::sleep_for(std::chrono::duration<double>(kWait));
      EXPECT_LT(cpu_seconds() - before, kWait / 2);
      EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(me.stream));
      may_come = true;
    }
    ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(me.stream));
    EXPECT_EQ(2.0f, floats(word, 1)[0]);
  });
}

TEST_F(NcclTest, ItsMemoryIsTheDevicesAndGoesWithTheCommunicator) {
  in_threads(2, [](NcclRank& me) {
    std::size_t with = 0, without = 0, total = 0;
    ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&with, &total));
    ASSERT_EQ(ncclSuccess, ncclCommDestroy(me.comm));
    me.comm = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&without, &total));
    EXPECT_GE(without, with + (4 << 20));
    void* memory = nullptr;
    ASSERT_EQ(ncclSuccess, ncclMemAlloc(&memory, 100));
    set_floats(reinterpret_cast<CUdeviceptr>(memory), {3.0f});
    EXPECT_EQ(ncclSuccess, ncclMemFree(memory));
    EXPECT_EQ(ncclInvalidArgument, ncclMemFree(memory));
  });
}

}  // namespace
}  // namespace plexrl::simgpu
