// Threads that are cancelled while they use the GPU, many of them while they wait for it: no call
// is left half-way, and the next thread finds everything in order.
#include <pthread.h>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 4 << 20;
constexpr unsigned kSeed = 5;

struct Worker {
  Program& program;
  CUcontext context;
  CUdeviceptr data;

  void fill() const {
    const unsigned long long vectors = kBytes / 16;
    launch(program.kernel("fill"), vectors, nullptr, data, vectors, kSeed);
  }
};

/// Launches, allocates and frees until it is cancelled.
void* work(void* argument) {
  const Worker& worker = *static_cast<Worker*>(argument);
  CHECK(cuCtxSetCurrent(worker.context));
  while (true) {
    worker.fill();
    CHECK(cuMemFree(allocate(8 << 20)));
    pthread_testcancel();
  }
}

}  // namespace

int main() {
  Program program;
  Worker worker{program, nullptr, allocate(kBytes)};
  CHECK(cuCtxGetCurrent(&worker.context));
  bool all_cancelled = true;
  for (int round = 0; round < 3; ++round) {
    program.pause([&] {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, &work, &worker) != 0) std::exit(1);
      pthread_cancel(thread);
      void* ended = nullptr;
      pthread_join(thread, &ended);
      all_cancelled = all_cancelled && ended == PTHREAD_CANCELED;
      CHECK(cuCtxSynchronize());
    });
    worker.fill();
    print_device("data", worker.data, kBytes);
  }
  std::printf("all cancelled: %s\n", all_cancelled ? "yes" : "no");
  CHECK(cuMemFree(worker.data));
}
