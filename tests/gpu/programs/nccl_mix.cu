// NCCL with one rank: a communicator of its own, all-reduce, all-gather, reduce-scatter and
// broadcast in place and not, and a group of a send and a receive to itself, each round.
//
// Usage: nccl_mix LIBRARY [MIB [ROUNDS [PAUSE_MS]]]; LIBRARY is the libnccl.so of the machine.

#include <nccl.h>

#include "runtime_program.h"

namespace {

constexpr std::size_t kWords = std::size_t{1} << 20;

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s: ncclResult %d\n", call, static_cast<int>(result));
  std::exit(1);
}
#define CHECK_NCCL(call) check((call), #call)

}  // namespace

int main(int argc, char** argv) {
  const LibraryOptions options(argc, argv);
  const auto get_version = FROM_LIBRARY(options, ncclGetVersion);
  const auto get_id = FROM_LIBRARY(options, ncclGetUniqueId);
  const auto init = FROM_LIBRARY(options, ncclCommInitRank);
  const auto destroy = FROM_LIBRARY(options, ncclCommDestroy);
  const auto all_reduce = FROM_LIBRARY(options, ncclAllReduce);
  const auto all_gather = FROM_LIBRARY(options, ncclAllGather);
  const auto reduce_scatter = FROM_LIBRARY(options, ncclReduceScatter);
  const auto broadcast = FROM_LIBRARY(options, ncclBroadcast);
  const auto group_start = FROM_LIBRARY(options, ncclGroupStart);
  const auto group_end = FROM_LIBRARY(options, ncclGroupEnd);
  const auto send = FROM_LIBRARY(options, ncclSend);
  const auto receive = FROM_LIBRARY(options, ncclRecv);

  int version = 0;
  CHECK_NCCL(get_version(&version));
  std::fprintf(stderr, "version: %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  CHECK_CUDA(cudaSetDevice(0));
  ncclUniqueId id;
  ncclComm_t comm;
  CHECK_NCCL(get_id(&id));
  CHECK_NCCL(init(&comm, 1, id, 0));

  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  std::uint64_t* buffer[3];
  for (auto& one : buffer) {
    CHECK_CUDA(cudaMalloc(&one, kWords * sizeof(std::uint64_t)));
    CHECK_CUDA(cudaMemset(one, 1, kWords * sizeof(std::uint64_t)));
  }
  Ballast ballast(options.bytes);
  const auto mix_on_stream = [&](std::uint64_t* words, int round) {
    mix<<<64, 256, 0, stream>>>(words, kWords, static_cast<std::uint64_t>(round));
  };
  for (int round = 0; round < options.rounds; ++round) {
    mix_on_stream(buffer[0], round);
    CHECK_NCCL(all_reduce(buffer[0], buffer[1], kWords, ncclUint64, ncclSum, comm, stream));
    CHECK_NCCL(all_reduce(buffer[1], buffer[1], kWords, ncclUint64, ncclMax, comm, stream));
    mix_on_stream(buffer[1], round);
    CHECK_NCCL(all_gather(buffer[1], buffer[2], kWords, ncclUint64, comm, stream));
    mix_on_stream(buffer[2], round);
    CHECK_NCCL(reduce_scatter(buffer[2], buffer[0], kWords, ncclUint64, ncclSum, comm, stream));
    CHECK_NCCL(broadcast(buffer[0], buffer[1], kWords, ncclUint64, 0, comm, stream));
    mix_on_stream(buffer[1], round);
    CHECK_NCCL(group_start());
    CHECK_NCCL(send(buffer[1], kWords, ncclUint64, 0, comm, stream));
    CHECK_NCCL(receive(buffer[2], kWords, ncclUint64, 0, comm, stream));
    CHECK_NCCL(group_end());
    ballast.change(static_cast<std::uint64_t>(round));
    CHECK_CUDA(cudaDeviceSynchronize());
    std::this_thread::sleep_for(options.pause);
  }
  for (const std::uint64_t* one : buffer) {
    print_digest("buffer", one, kWords * sizeof(std::uint64_t));
  }
  ballast.print();
  CHECK_NCCL(destroy(comm));
  return 0;
}
