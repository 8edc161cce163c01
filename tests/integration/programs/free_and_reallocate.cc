// Memory is freed and taken anew, with work in between and right before the free; what stays keeps
// its bytes.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 12 << 20, words = bytes / 4;
  const CUdeviceptr kept = allocate(bytes);
  CHECK(cuMemsetD32(kept, 7, words));
  for (unsigned round = 0; round < 4; ++round) {
    const CUdeviceptr scratch = allocate(bytes + round * 4096);
    CHECK(cuMemsetD32(scratch, round, words));
    launch(program.kernel("combine"), words, nullptr, kept, kept, scratch,
           static_cast<unsigned long long>(words), 3u);
    program.pause();
    launch(program.kernel("mix"), words, nullptr, kept, static_cast<unsigned long long>(words),
           round);
    CHECK(cuMemFree(scratch));
  }
  print_device("kept", kept, bytes);
  CHECK(cuMemFree(kept));
}
