// A program on NVIDIA's own runtime library: allocations, streams, events, a captured graph and
// stream-ordered memory, for ROUNDS rounds with pauses in which another job may have the GPU.
// Prints digests of all its device memory. Usage: cudart_mix [MIB [ROUNDS [PAUSE_MS]]]

#include "runtime_program.h"

int main(int argc, char** argv) {
  const std::size_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 10;
  const auto pause = std::chrono::milliseconds(argc > 3 ? std::atoi(argv[3]) : 50);
  constexpr int kBlocks = 4;
  const std::size_t count = mib * 1024 * 1024 / sizeof(std::uint64_t) / kBlocks;

  int version = 0;
  CHECK_CUDA(cudaRuntimeGetVersion(&version));
  std::fprintf(stderr, "version: %d.%d\n", version / 1000, version % 1000 / 10);

  std::uint64_t* block[kBlocks];
  for (auto& one : block) {
    CHECK_CUDA(cudaMalloc(&one, count * sizeof(std::uint64_t)));
    CHECK_CUDA(cudaMemset(one, 0x5a, count * sizeof(std::uint64_t)));
  }
  cudaStream_t stream[2];
  for (auto& one : stream) CHECK_CUDA(cudaStreamCreate(&one));
  cudaEvent_t half;
  CHECK_CUDA(cudaEventCreateWithFlags(&half, cudaEventDisableTiming));

  cudaGraph_t graph;
  cudaGraphExec_t captured;
  CHECK_CUDA(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeGlobal));
  mix<<<64, 256, 0, stream[0]>>>(block[0], count, 1);
  CHECK_CUDA(cudaEventRecord(half, stream[0]));
  CHECK_CUDA(cudaStreamWaitEvent(stream[1], half, 0));
  mix<<<64, 256, 0, stream[1]>>>(block[1], count, 2);
  CHECK_CUDA(cudaEventRecord(half, stream[1]));
  CHECK_CUDA(cudaStreamWaitEvent(stream[0], half, 0));
  CHECK_CUDA(cudaStreamEndCapture(stream[0], &graph));
  CHECK_CUDA(cudaGraphInstantiate(&captured, graph, 0));

  for (int round = 0; round < rounds; ++round) {
    CHECK_CUDA(cudaGraphLaunch(captured, stream[0]));
    mix<<<64, 256, 0, stream[1]>>>(block[2], count, static_cast<std::uint64_t>(round));
    std::uint64_t* scratch = nullptr;
    CHECK_CUDA(cudaMallocAsync(&scratch, 1 << 20, stream[1]));
    CHECK_CUDA(cudaMemcpyAsync(scratch, block[2], 1 << 20, cudaMemcpyDeviceToDevice, stream[1]));
    CHECK_CUDA(cudaMemcpyAsync(block[3], scratch, 1 << 20, cudaMemcpyDeviceToDevice, stream[1]));
    CHECK_CUDA(cudaFreeAsync(scratch, stream[1]));
    mix<<<64, 256, 0, stream[1]>>>(block[3], count, static_cast<std::uint64_t>(round));
    CHECK_CUDA(cudaDeviceSynchronize());
    std::this_thread::sleep_for(pause);
  }

  for (auto* one : block) {
    print_digest("block", one, count * sizeof(std::uint64_t));
    CHECK_CUDA(cudaFree(one));
  }
  return 0;
}
