// A program that is on the GPU all the time until the file that it is given exists, and says each
// signal it handles, at once, a line each. At its end it checks what its kernels have computed.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

void say_signal(int number) {
  const char* name = number == SIGTERM ? "SIGTERM\n" : "SIGINT\n";
  if (write(STDOUT_FILENO, name, std::strlen(name)) < 0) _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  struct sigaction action {};
  action.sa_handler = &say_signal;
  sigaction(SIGINT, &action, nullptr);
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);

  Program program;
  const CUdeviceptr data = allocate(4);
  std::uint32_t expected = 1, round = 0;
  CHECK(cuMemsetD32(data, expected, 1));
  while (access(argv[1], F_OK) != 0) {
    launch(program.kernel("mix"), 1, nullptr, data, 1ull, ++round);
    CHECK(cuCtxSynchronize());
    expected = hash32(expected + round);
  }
  std::uint32_t seen = 0;
  CHECK(cuMemcpyDtoH(&seen, data, sizeof seen));
  std::printf("%s after many rounds\n", seen == expected ? "right" : "wrong");
  return 0;
}
