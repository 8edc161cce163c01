// Four threads allocate, launch and free in one context at the same time, while the lease comes and
// goes.
#include <thread>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  std::vector<std::string> results(4);
  const auto work = [&](std::size_t i) {
    CHECK(cuCtxSetCurrent(context));
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const std::size_t bytes = (1 << 20) + i * 4096, words = bytes / 4;
    const CUdeviceptr kept = allocate(bytes);
    CHECK(cuMemsetD32Async(kept, static_cast<unsigned>(i), words, stream));
    for (unsigned round = 0; round < 12; ++round) {
      const CUdeviceptr scratch = allocate(bytes);
      CHECK(cuMemsetD32Async(scratch, round, words, stream));
      launch(program.kernel("combine"), words, stream, kept, kept, scratch,
             static_cast<unsigned long long>(words), 5u);
      launch(program.kernel("mix"), words, stream, kept, static_cast<unsigned long long>(words),
             round);
      CHECK(cuStreamSynchronize(stream));
      CHECK(cuMemFree(scratch));
    }
    std::vector<unsigned char> data(bytes);
    CHECK(cuMemcpyDtoHAsync(data.data(), kept, bytes, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(kept));
    CHECK(cuStreamDestroy(stream));
    results[i] = digest(data.data(), bytes);
  };
  for (int rounds = 0; rounds < 3; ++rounds) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < results.size(); ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
    program.pause();
    for (const std::string& result : results) std::printf("thread: %s\n", result.c_str());
  }
}
