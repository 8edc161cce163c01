// Stream-ordered allocations beside ordinary ones, in use across a switch.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 6 << 20, words = bytes / 4;
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr plain = allocate(bytes);
  CHECK(cuMemsetD32Async(plain, 4, words, stream));
  for (unsigned round = 0; round < 4; ++round) {
    CUdeviceptr pooled;
    CHECK(cuMemAllocAsync(&pooled, bytes, stream));
    CHECK(cuMemsetD32Async(pooled, round, words, stream));
    program.pause();
    launch(program.kernel("combine"), words, stream, plain, plain, pooled,
           static_cast<unsigned long long>(words), 3u);
    launch(program.kernel("mix"), words, stream, plain, static_cast<unsigned long long>(words),
           round);
    CHECK(cuMemFreeAsync(pooled, stream));
  }
  CHECK(cuStreamSynchronize(stream));
  print_device("plain", plain, bytes);
  CHECK(cuStreamDestroy(stream));
  CHECK(cuMemFree(plain));
}
