// A program that is on the GPU all the time until the file FILE exists, and then becomes another
// one by exec, in the middle of its work: `becomes_another FILE PROGRAM [ARGUMENT…]`. A child of
// fork, which has copies of its descriptors, lives as long as the process.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  Program program;
  const std::size_t words = 1 << 18;
  const CUdeviceptr data = allocate(words * 4);
  CHECK(cuMemsetD32(data, 1, words));
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == self) pause();
    _exit(0);
  }
  for (unsigned round = 0; access(argv[1], F_OK) != 0; ++round) {
    launch(program.kernel("mix"), words, nullptr, data, static_cast<unsigned long long>(words),
           round);
    if (round % 8 == 0) CHECK(cuCtxSynchronize());
  }
  execvp(argv[2], argv + 2);
  return 127;
}
