// Compiled for the per-thread default stream: the calls are the driver's _ptsz variants. Two
// threads use stream 0, each its own.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <thread>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const CUdeviceptr blocks[2] = {allocate(bytes), allocate(bytes)};
  const auto work = [&](int i, unsigned round) {
    CHECK(cuCtxSetCurrent(context));
    if (round == 0) CHECK(cuMemsetD32Async(blocks[i], i, words, nullptr));
    launch(program.kernel("hold"), 1, nullptr, 1'000'000ull);
    launch(program.kernel("mix"), words, nullptr, blocks[i], static_cast<unsigned long long>(words),
           round);
    CHECK(cuStreamSynchronize(nullptr));
  };
  for (unsigned round = 0; round < 4; ++round) {
    std::thread other(work, 1, round);
    work(0, round);
    other.join();
    program.pause();
  }
  for (const CUdeviceptr block : blocks) {
    print_device("block", block, bytes);
    CHECK(cuMemFree(block));
  }
}
