// For run_catching.py: launches through a function of the driver that is newer than cuda.h, found
// as the first argument says (by_name, by_version, newer_form). It looks the function up, lets its
// memory be taken once, calls the function, and then waits, idle, until the runner opens the FIFO
// that the second argument names.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

using WaveFn = CUresult (*)(CUfunction, unsigned, unsigned, CUstream, void**);
using NewerFn = CUresult (*)(CUfunction, unsigned, unsigned, CUstream, void**, unsigned);

void* look_up(const std::string& way) {
  if (way == "by_name") return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchWave");
  const char* const name = way == "newer_form" ? "cuLaunchKernel" : "cuLaunchWave";
  void* function = nullptr;
  CHECK(cuGetProcAddress(name, &function, 13020, CU_GET_PROC_ADDRESS_DEFAULT, nullptr));
  return function;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string way = argv[1];
  Program program;
  const std::size_t words = 1 << 20;
  CUdeviceptr data = allocate(4 * words);
  CHECK(cuMemsetD32(data, 7, words));
  void* const function = look_up(way);
  if (function == nullptr) return 1;
  program.pause();
  unsigned long long count = words;
  unsigned seed = 1;
  void* arguments[] = {&data, &count, &seed};
  const CUfunction mix = program.kernel("mix");
  const unsigned blocks = words / 128;
  if (way == "newer_form") {
    CHECK(reinterpret_cast<NewerFn>(function)(mix, blocks, 128, nullptr, arguments, 0));
  } else {
    CHECK(reinterpret_cast<WaveFn>(function)(mix, blocks, 128, nullptr, arguments));
  }
  print_device("data", data, 4 * words);
  std::fflush(stdout);
  const int released = open(argv[2], O_RDONLY);
  if (released < 0) return 1;
  close(released);
  CHECK(cuMemFree(data));
}
