// For run_prefetch.py: until the runner says stop, memory is allocated, used and freed, with
// stretches in between in which nothing is held.
#include <chrono>
#include <thread>

#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  constexpr std::size_t kBytes = 96 << 20;
  Peer* const peer = require_peer();
  Program program;
  while (peer->stop.load() == 0) {
    const CUdeviceptr data = allocate(kBytes);
    const unsigned long long vectors = kBytes / 16;
    launch(program.kernel("fill"), vectors, nullptr, data, vectors, 7u);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree(data));
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
  }
}
