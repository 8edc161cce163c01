// More than the GPU has is out of memory at the allocation, and what was there goes on working.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  std::size_t free_bytes, total;
  CHECK(cuMemGetInfo(&free_bytes, &total));
  const std::size_t bytes = 8 << 20;
  const CUdeviceptr data = allocate(bytes);
  CHECK(cuMemsetD8(data, 9, bytes));
  CUdeviceptr none = 42;
  for (int round = 0; round < 3; ++round) {
    program.pause();
    std::printf("more than all: %s\n", error_name(cuMemAlloc(&none, 2 * total)).c_str());
    std::printf("zero bytes: %s\n", error_name(cuMemAlloc(&none, 0)).c_str());
    launch(program.kernel("mix"), bytes / 4, nullptr, data,
           static_cast<unsigned long long>(bytes / 4), 1u);
  }
  std::vector<CUdeviceptr> blocks;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS) {
    CUdeviceptr block = 0;
    result = cuMemAlloc(&block, 16 << 20);
    if (result == CUDA_SUCCESS) blocks.push_back(block);
  }
  std::printf("at the end: %s, untouched: %s\n", error_name(result).c_str(),
              none == 42 ? "yes" : "no");
  std::printf("until then: %s\n",
              blocks.size() * (16ull << 20) <= total ? "less than the GPU" : "more than the GPU");
  for (const CUdeviceptr block : blocks) CHECK(cuMemFree(block));
  program.pause();
  print_device("data", data, bytes);
  CHECK(cuMemFree(data));
}
