// A program that uses the GPU and then becomes another by exec, with work in flight: the next one
// has the same process id, memory of its own, and the GPU as a new process has it.
#include <unistd.h>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr int kLives = 3;

}  // namespace

int main(int argc, char** argv) {
  const int life = argc > 1 ? std::atoi(argv[1]) : 0;
  Program program;
  const std::size_t bytes = 8 << 20, words = bytes / 4;
  const CUdeviceptr data = allocate(bytes);
  CHECK(cuMemsetD32(data, static_cast<unsigned>(life), words));
  program.pause();
  launch(program.kernel("mix"), words, nullptr, data, static_cast<unsigned long long>(words), 1u);
  print_device("data", data, bytes);
  if (life + 1 < kLives) {
    launch(program.kernel("mix"), words, nullptr, data, static_cast<unsigned long long>(words), 2u);
    std::fflush(stdout);
    const std::string next = std::to_string(life + 1);
    execl("/proc/self/exe", argv[0], next.c_str(), static_cast<char*>(nullptr));
    return 127;
  }
  CHECK(cuMemFree(data));
}
