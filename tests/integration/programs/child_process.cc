// A program that uses the GPU from a child it has started while it uses it itself: both belong to
// one gang, which gets the GPU and loses it as a whole.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

int work(const char* name, unsigned seed, pid_t child) {
  Program program;
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const CUdeviceptr data = allocate(bytes);
  CHECK(cuMemsetD32(data, seed, words));
  for (unsigned round = 0; round < 3; ++round) {
    launch(program.kernel("mix"), words, nullptr, data, static_cast<unsigned long long>(words),
           round);
    CHECK(cuCtxSynchronize());
    program.pause();
  }
  int status = 0;
  if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) return 1;
  print_device(name, data, bytes);  // after the child's output
  CHECK(cuMemFree(data));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "child") == 0) return work("child", 1, 0);
  setenv("PLEXRL_TEST_BALLAST", "33554432", 1);  // two processes of one job have to fit together
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", argv[0], "child", static_cast<char*>(nullptr));
    _exit(127);
  }
  return work("parent", 2, child);
}
