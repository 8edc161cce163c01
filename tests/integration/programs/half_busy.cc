// For run_figures.py: the GPU is busy and idle in turn, each about as long. At the end it waits,
// idle, until the runner has read the manager's figures and says stop, and does one more piece of
// work, so that the trace has the end of that gap too.
#include <chrono>
#include <thread>

#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  constexpr auto kStretch = std::chrono::milliseconds(150);
  constexpr unsigned long long kStretchNs = std::chrono::nanoseconds(kStretch).count();
  constexpr int kRounds = 6;
  Peer* const peer = require_peer();
  Program program;
  for (int round = 0; round < kRounds; ++round) {
    launch(program.kernel("hold"), 1, nullptr, kStretchNs);
    CHECK(cuCtxSynchronize());
    std::this_thread::sleep_for(kStretch);
  }
  std::printf("busy_ns: %llu\n", kRounds * kStretchNs);
  peer->program_pauses.store(1);
  while (peer->stop.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  launch(program.kernel("hold"), 1, nullptr, kStretchNs);
  CHECK(cuCtxSynchronize());
}
