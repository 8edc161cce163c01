// For run_prefetch.py: until the runner says stop, a kernel changes memory every 300 ms, and the
// host knows what it must make of it.
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  constexpr std::size_t kWords = 1 << 20;
  Peer* const peer = require_peer();
  Program program;
  std::vector<std::uint32_t> expected(kWords);
  const std::vector<unsigned char> first = pattern(kWords * sizeof expected[0], 11);
  std::memcpy(expected.data(), first.data(), first.size());
  const CUdeviceptr data = allocate(first.size());
  CHECK(cuMemcpyHtoD(data, first.data(), first.size()));
  for (std::uint32_t round = 0; peer->stop.load() == 0; ++round) {
    const unsigned long long words = kWords;
    launch(program.kernel("mix"), kWords, nullptr, data, words, round);
    CHECK(cuCtxSynchronize());
    for (std::uint32_t& word : expected) word = hash32(word + round);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  std::vector<std::uint32_t> found(kWords);
  CHECK(cuMemcpyDtoH(found.data(), data, first.size()));
  std::printf("memory: %s\n", found == expected ? "as computed" : "DIFFERENT");
}
