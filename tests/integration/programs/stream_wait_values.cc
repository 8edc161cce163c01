// A stream that waits for a value which another stream writes later: outstanding work that no drain
// can finish by waiting.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const CUdeviceptr data = allocate(bytes), flag = allocate(4);
  CHECK(cuMemsetD32(data, 1, words));
  CHECK(cuMemsetD32(flag, 0, 1));
  CUstream waiter, writer;
  CHECK(cuStreamCreate(&waiter, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
  CHECK(cuCtxSynchronize());
  for (unsigned round = 1; round <= 4; ++round) {
    CHECK(cuStreamWaitValue32(waiter, flag, round, CU_STREAM_WAIT_VALUE_GEQ));
    launch(program.kernel("mix"), words, waiter, data, static_cast<unsigned long long>(words),
           round);
    launch(program.kernel("hold"), 1, writer, 20'000'000ull);
    CHECK(cuStreamWriteValue32(writer, flag, round, 0));
    CHECK(cuStreamSynchronize(waiter));
    program.pause();
  }
  print_device("data", data, bytes);
  print_device("flag", flag, 4);
  for (const CUstream stream : {waiter, writer}) CHECK(cuStreamDestroy(stream));
  for (const CUdeviceptr block : {data, flag}) CHECK(cuMemFree(block));
}
