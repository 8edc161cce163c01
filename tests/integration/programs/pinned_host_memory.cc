// Kernels that read and write pinned and registered host memory directly.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

#include <sys/mman.h>

int main() {
  Program program;
  const std::size_t bytes = 1 << 20, words = bytes / 4;
  void* pinned;
  CHECK(cuMemHostAlloc(&pinned, bytes, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
  void* own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(cuMemHostRegister(own, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr pinned_device, own_device;
  CHECK(cuMemHostGetDevicePointer(&pinned_device, pinned, 0));
  CHECK(cuMemHostGetDevicePointer(&own_device, own, 0));
  const CUdeviceptr data = allocate(bytes);
  const auto start = pattern(bytes, 3);
  std::copy(start.begin(), start.end(), static_cast<unsigned char*>(pinned));
  std::copy(start.rbegin(), start.rend(), static_cast<unsigned char*>(own));
  for (unsigned round = 0; round < 4; ++round) {
    launch(program.kernel("combine"), words, nullptr, data, pinned_device, own_device,
           static_cast<unsigned long long>(words), round + 1);
    launch(program.kernel("mix"), words, nullptr, own_device,
           static_cast<unsigned long long>(words), round);
    program.pause();
    launch(program.kernel("combine"), words, nullptr, pinned_device, data, own_device,
           static_cast<unsigned long long>(words), 9u);
    CHECK(cuCtxSynchronize());
  }
  print_host("pinned", pinned, bytes);
  print_host("registered", own, bytes);
  print_device("device", data, bytes);
  CHECK(cuMemHostUnregister(own));
  CHECK(cuMemFreeHost(pinned));
  CHECK(cuMemFree(data));
}
