// Children by vfork and by posix_spawn, which run no handlers of fork, while the parent's work is
// in flight: one that leaves CUDA alone and one that uses it.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

int wait_for(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int by_vfork(const char* role) {
  std::fflush(stdout);
  const pid_t child = vfork();
  if (child == 0) {
    execl("/proc/self/exe", "child", role, static_cast<char*>(nullptr));
    _exit(127);
  }
  return wait_for(child);
}

int by_posix_spawn(const char* role) {
  std::fflush(stdout);
  char name[] = "child";
  char* const arguments[] = {name, const_cast<char*>(role), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) return -1;
  return wait_for(child);
}

int use_the_gpu(const char* name) {
  Program program;
  const CUdeviceptr data = allocate(4 << 20);
  CHECK(cuMemsetD32(data, 7, 1 << 20));
  program.pause();
  print_device(name, data, 4 << 20);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return std::strcmp(argv[1], "idle") == 0 ? 11 : use_the_gpu("child");
  Program program;
  setenv("PLEXRL_TEST_BALLAST", "8388608", 1);  // of the children: they fit beside their parent
  const std::size_t bytes = 8 << 20, words = bytes / 4;
  const CUdeviceptr data = allocate(bytes);
  CHECK(cuMemsetD32(data, 1, words));
  unsigned round = 0;
  for (const auto spawn : {&by_vfork, &by_posix_spawn}) {
    for (const char* role : {"idle", "uses"}) {
      program.pause();
      launch(program.kernel("mix"), words, nullptr, data, static_cast<unsigned long long>(words),
             ++round);
      std::printf("%s: %d\n", role, spawn(role));
      print_device("parent", data, bytes);
    }
  }
  CHECK(cuMemFree(data));
}
