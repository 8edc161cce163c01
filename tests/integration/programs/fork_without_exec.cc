// Children that never exec, as of multiprocessing's "fork": those that leave CUDA alone do their
// work and end well by any route, and one that is forked before its parent uses CUDA uses it
// itself.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

/// The child's status, or 128 + its signal.
template <typename Body>
int in_child(Body body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) body();
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

unsigned sum_of(const std::vector<unsigned char>& data) {
  unsigned sum = 0;
  for (const unsigned char byte : data) sum += byte;
  return sum;
}

/// What a DataLoader's worker does: threads, memory, and never a call of CUDA.
void load_data() {
  const std::vector<unsigned char> data = pattern(1 << 20, 3);
  unsigned sums[2] = {};
  std::thread other([&] { sums[0] = sum_of(data); });
  sums[1] = sum_of(data);
  other.join();
  if (sums[0] != sums[1]) _exit(1);
}

void use_the_gpu(const char* name) {
  Program program;
  const CUdeviceptr data = allocate(4 << 20);
  for (unsigned round = 0; round < 2; ++round) {
    CHECK(cuMemsetD32(data, round, 1 << 20));
    program.pause();
    print_device(name, data, 4 << 20);
  }
  CHECK(cuMemFree(data));
}

}  // namespace

int main() {
  std::printf("forked before: %d\n", in_child([] {
                use_the_gpu("early child");
                std::exit(0);
              }));
  Program program;
  const CUdeviceptr data = allocate(8 << 20);
  const std::vector<unsigned char> bytes = pattern(8 << 20, 9);
  CHECK(cuMemcpyHtoD(data, bytes.data(), bytes.size()));
  for (unsigned round = 0; round < 2; ++round) {
    program.pause();
    // Work of the parent is queued, and its memory may be in the host, while the children live.
    launch(program.kernel("mix"), 2 << 20, nullptr, data, 2ull << 20, round);
    std::printf("ends by _exit: %d\n", in_child([] { load_data(), _exit(11); }));
    std::printf("ends by exit: %d\n", in_child([] { load_data(), std::exit(12); }));
    std::printf("is killed: %d\n", in_child([] { load_data(), raise(SIGKILL); }));
    program.pause();
    print_device("data", data, 8 << 20);
  }
  CHECK(cuMemFree(data));
}
