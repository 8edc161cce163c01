// For run_waiting.py: a handler of SIGTERM that copies the job's memory from the GPU, as a
// checkpoint, and ends the process. It runs while the main thread does nothing.
#include <unistd.h>

#include <csignal>

#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 24 << 20, kWords = kBytes / 4;

CUdeviceptr weights = 0, pooled = 0;

void save(int) {
  print_device("checkpoint: weights", weights, kBytes);
  print_device("checkpoint: of a pool", pooled, kBytes);
  std::exit(3);
}

}  // namespace

int main() {
  Peer* const peer = map_peer();
  unsetenv("PLEXRL_TEST_PEER");  // this program's pauses are the runner's
  Program program;
  weights = allocate(kBytes);
  CHECK(cuMemAllocAsync(&pooled, kBytes, nullptr));
  CHECK(cuMemsetD32(weights, 1, kWords));
  CHECK(cuMemsetD32(pooled, 2, kWords));
  for (const CUdeviceptr data : {weights, pooled}) {
    launch(program.kernel("mix"), kWords, nullptr, data, static_cast<unsigned long long>(kWords),
           4u);
  }
  CHECK(cuCtxSynchronize());
  sigset_t terminate, before;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  if (pthread_sigmask(SIG_BLOCK, &terminate, &before) != 0) return 1;
  struct sigaction action = {};
  action.sa_handler = &save;
  sigaction(SIGTERM, &action, nullptr);
  if (peer != nullptr) {
    peer->program_pauses.store(1);
  } else {
    raise(SIGTERM);
  }
  while (true) sigsuspend(&before);
}
