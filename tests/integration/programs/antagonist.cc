// The neighbour in a sharing test: it rewrites all of its memory again and again, checks it against
// what it must be, and counts rounds for the program (peer.h), until the runner says stop. It fails
// if a byte of its own is ever wrong.
#include <chrono>
#include <thread>

#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kSampleBytes = 64 << 10;

// What `fill` and then `rounds` times `mix` have made of the first words.
void expect_sample(CUdeviceptr data, std::vector<std::uint32_t>& expected) {
  std::vector<std::uint32_t> seen(expected.size());
  CHECK(cuMemcpyDtoH(seen.data(), data, kSampleBytes));
  if (seen == expected) return;
  std::fprintf(stderr, "antagonist: its memory has changed\n");
  std::_Exit(1);
}

}  // namespace

int main() {
  Peer* const peer = require_peer();
  Program program;
  const char* mib = std::getenv("PLEXRL_TEST_ANTAGONIST");
  const std::size_t bytes = mib == nullptr ? 48 << 20 : std::strtoull(mib, nullptr, 10);
  const CUdeviceptr data = allocate(bytes);
  const std::size_t words = bytes / 4;
  CHECK(cuMemsetD32(data, 1, words));
  // The first and the last part change in each round by a kernel; the middle by a memset, which
  // costs the simulator less.
  std::vector<std::uint32_t> expected(kSampleBytes / 4, 1);
  const std::size_t sample = kSampleBytes / 4;
  for (std::uint32_t round = 1; peer->stop.load() == 0; ++round) {
    launch(program.kernel("mix"), sample, nullptr, data, static_cast<unsigned long long>(sample),
           round);
    CHECK(cuMemsetD32Async(data + kSampleBytes, round, words - sample, nullptr));
    CHECK(cuCtxSynchronize());
    for (std::uint32_t& word : expected) word = hash32(word + round);
    peer->antagonist_rounds.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    expect_sample(data, expected);
    std::uint32_t last = 0;
    CHECK(cuMemcpyDtoH(&last, data + bytes - 4, 4));
    if (last != round) {
      std::fprintf(stderr, "antagonist: its last word has changed\n");
      return 1;
    }
  }
  CHECK(cuMemFree(data));
  return 0;
}
