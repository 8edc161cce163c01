// A program that never rests by itself: more than half a second of work is queued, stream behind
// stream, and more follows as long as the GPU is not taken away, which therefore happens in the
// middle of it.
#include <array>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

struct Link {
  CUstream stream;
  CUevent done;
};

}  // namespace

int main() {
  Program program;
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const CUdeviceptr data = allocate(bytes);
  std::array<Link, 32> chain;
  for (Link& link : chain) {
    CHECK(cuStreamCreate(&link.stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&link.done, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
  }
  CHECK(cuMemsetD32(data, 5, words));
  CHECK(cuCtxSynchronize());
  std::size_t next = 0;
  for (unsigned round = 0; round < 2; ++round) {
    launch(program.kernel("mix"), words, chain[next].stream, data,
           static_cast<unsigned long long>(words), round);
    program.pause([&] {
      Link& link = chain[next];
      const std::size_t before = (next + chain.size() - 1) % chain.size();
      CHECK(cuEventSynchronize(link.done));  // one round of the chain ago
      CHECK(cuStreamWaitEvent(link.stream, chain[before].done, 0));
      launch(program.kernel("hold"), 1, link.stream, 20'000'000ull);
      CHECK(cuEventRecord(link.done, link.stream));
      next = (next + 1) % chain.size();
    });
    CHECK(cuCtxSynchronize());
  }
  print_device("data", data, bytes);
  for (const Link& link : chain) {
    CHECK(cuEventDestroy(link.done));
    CHECK(cuStreamDestroy(link.stream));
  }
  CHECK(cuMemFree(data));
}
