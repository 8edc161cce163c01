// Prints the time, in ns, from the start of the first of many processes to the end of the last:
// each makes a context, takes 1 MiB of device memory, gives it back and ends, all at once. Usage:
// init_many PROCESSES
#include <cuda.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/bench/programs/cuda_check.h"

namespace {

constexpr const char* kOne = "one";

int initialise() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr data = 0;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDeviceGet(&device, 0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_CU(cuCtxSetCurrent(context));
  CHECK_CU(cuMemAlloc(&data, 1 << 20));
  CHECK_CU(cuMemFree(data));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], kOne) == 0) return initialise();
  const int count = argc == 2 ? std::atoi(argv[1]) : 0;
  if (count <= 0) {
    std::fprintf(stderr, "usage: init_many PROCESSES\n");
    return 2;
  }
  char program[] = "/proc/self/exe", one[] = "one";
  char* const arguments[] = {program, one, nullptr};
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    pid_t child = 0;
    if (posix_spawn(&child, program, nullptr, nullptr, arguments, environ) != 0) return 1;
  }
  int failed = 0, status = 0;
  while (wait(&status) > 0) failed += status != 0 ? 1 : 0;
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
  if (failed != 0) {
    std::fprintf(stderr, "%d of %d processes failed\n", failed, count);
    return 1;
  }
  std::printf("%lld\n", static_cast<long long>(took.count()));
  return 0;
}
