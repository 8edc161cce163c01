// Processes that end by every route with work in flight, and with a static destructor that still
// calls CUDA: each ends with the status of its route, and what it did not wait for disturbs nobody.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <exception>
#include <thread>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

CUdeviceptr in_use = 0;

/// As frameworks have them: whatever CUDA answers by then is fine, an end of its own is not.
struct FreesLate {
  ~FreesLate() {
    if (in_use != 0) cuMemFree(in_use);
    cuCtxSynchronize();
  }
} frees_late;

void on_signal(int) { _exit(16); }

/// Returns only for "return".
void end_by(const std::string& route) {
  if (route == "exit") std::exit(11);
  if (route == "_exit") _exit(12);
  if (route == "quick_exit") std::quick_exit(13);
  if (route == "abort") std::abort();
  if (route == "terminate") std::terminate();
  if (route == "exit in a thread") {
    std::thread([] { std::exit(14); }).join();
  }
  if (route == "_exit in a handler") {
    std::signal(SIGTERM, &on_signal);
    raise(SIGTERM);
  }
  if (route == "SIGTERM") raise(SIGTERM);
  if (route == "SIGSEGV") raise(SIGSEGV);
}

/// `leased`: it ends while it runs, else after a pause, when the GPU may be another's.
int work_and_end(const std::string& route, bool leased) {
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  Program* const program = new Program;  // stays, so that its memory is never freed
  const std::size_t bytes = 8 << 20, words = bytes / 4;
  in_use = allocate(bytes);
  CHECK(cuMemsetD32(in_use, 3, words));
  if (!leased) {
    CHECK(cuCtxSynchronize());
    program->pause();
  } else {
    for (unsigned i = 0; i < 20; ++i) {
      launch(program->kernel("mix"), words, nullptr, in_use, static_cast<unsigned long long>(words),
             i);
    }
  }
  end_by(route);
  return 15;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return work_and_end(argv[1], std::strcmp(argv[2], "leased") == 0);
  Program program;
  setenv("PLEXRL_TEST_BALLAST", "8388608", 1);  // of the children: they fit beside their parent
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const CUdeviceptr data = allocate(bytes);
  CHECK(cuMemsetD32(data, 1, words));
  unsigned round = 0;
  for (const char* when : {"leased", "without a lease"}) {
    for (const char* route : {"return", "exit", "_exit", "quick_exit", "abort", "terminate",
                              "exit in a thread", "_exit in a handler", "SIGTERM", "SIGSEGV"}) {
      std::fflush(stdout);
      const pid_t child = fork();
      if (child == 0) {
        execl("/proc/self/exe", argv[0], route, when, static_cast<char*>(nullptr));
        _exit(127);
      }
      int status = 0;
      if (waitpid(child, &status, 0) != child) return 1;
      std::printf("%s, %s: %s %d\n", route, when, WIFEXITED(status) ? "status" : "signal",
                  WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
      launch(program.kernel("mix"), words, nullptr, data, static_cast<unsigned long long>(words),
             ++round);
      print_device("parent", data, bytes);
    }
  }
  CHECK(cuMemFree(data));
}
