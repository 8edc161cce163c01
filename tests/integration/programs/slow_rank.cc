// Two ranks of a communicator, each with a GPU; the second does something else, without its GPU,
// before each all-reduce. For run_collectives.py and the benchmark: slow_rank STEPS SECONDS. With
// PLEXRL_TEST_TIMES in its environment the first rank says on stderr how many ns its steps took.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr int kRanks = 2;
constexpr std::size_t kBytes = 8 << 20;
constexpr int kInt32 = 2, kSum = 0;  // as nccl.h numbers them

struct UniqueId {
  char bytes[128];
};
struct Shared {
  std::atomic<int> has_id;
  UniqueId id;
};

template <typename Function>
Function* nccl(const char* name) {
  static void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "no %s\n", name);
    std::exit(1);
  }
  return reinterpret_cast<Function*>(found);
}

void check_nccl(int result, const char* call) {
  if (result == 0) return;
  std::fprintf(stderr, "%s: %s\n", call, nccl<const char*(int)>("ncclGetErrorString")(result));
  std::exit(1);
}

void run(int rank, int steps, double seconds, Shared* shared) {
  setenv("CUDA_VISIBLE_DEVICES", std::to_string(rank).c_str(), 1);
  Program program;
  if (rank == 0) {
    check_nccl(nccl<int(UniqueId*)>("ncclGetUniqueId")(&shared->id), "ncclGetUniqueId");
    shared->has_id.store(1);
  }
  while (shared->has_id.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  void* comm = nullptr;
  check_nccl(
      nccl<int(void**, int, UniqueId, int)>("ncclCommInitRank")(&comm, kRanks, shared->id, rank),
      "ncclCommInitRank");
  const auto all_reduce =
      nccl<int(const void*, void*, std::size_t, int, int, void*, CUstream)>("ncclAllReduce");
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = allocate(kBytes);
  const auto first = pattern(kBytes, static_cast<std::uint32_t>(rank) + 1);
  CHECK(cuMemcpyHtoD(data, first.data(), kBytes));
  const auto begun = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    void* const at = reinterpret_cast<void*>(data);
    check_nccl(all_reduce(at, at, kBytes / 4, kInt32, kSum, comm, stream), "ncclAllReduce");
    CHECK(cuStreamSynchronize(stream));
  }
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begun;
  if (rank == 0 && std::getenv("PLEXRL_TEST_TIMES") != nullptr)
    std::fprintf(stderr, "%lld\n", static_cast<long long>(took.count()));
  print_device("sums", data, kBytes);
  check_nccl(nccl<int(void*)>("ncclCommDestroy")(comm), "ncclCommDestroy");
  CHECK(cuMemFree(data));
  CHECK(cuStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const page =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  int status = 0;
  pid_t ranks[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks[rank] = fork();
    if (ranks[rank] != 0) continue;
    run(rank, std::atoi(argv[1]), std::atof(argv[2]), static_cast<Shared*>(page));
    return 0;
  }
  for (const pid_t rank : ranks) {
    int ended = 0;
    waitpid(rank, &ended, 0);
    status |= ended;
  }
  return status == 0 ? 0 : 1;
}
