// Kernels with barriers, shared memory, shuffles and integer atomics.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const unsigned long long words = 300'001;
  const int bins = 100;
  const CUdeviceptr data = allocate(words * 4), counts = allocate(bins * 4), sum = allocate(8);
  CHECK(cuMemsetD32(data, 1, words));
  CHECK(cuMemsetD32(counts, 0, bins));
  CHECK(cuMemsetD8(sum, 0, 8));
  for (unsigned round = 0; round < 4; ++round) {
    launch(program.kernel("combine"), words, nullptr, data, data, data, words, round + 2);
    launch(program.kernel("mix"), words, nullptr, data, words, round);
    launch(program.kernel("histogram"), words, nullptr, data, words, counts, bins);
    program.pause();
    launch(program.kernel("reduce"), words, nullptr, data, words, sum);
  }
  print_device("counts", counts, bins * 4);
  print_device("sum", sum, 8);
  for (const CUdeviceptr block : {data, counts, sum}) CHECK(cuMemFree(block));
}
