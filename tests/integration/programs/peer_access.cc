// A kernel on one device that reads and writes memory of another: allocated before and after the
// access was enabled, and away from its device in between; also when it was disabled meanwhile.
// Runner: gpus=2
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

#include "tests/integration/programs/kernels.ptx.h"

int main() {
  Program program;
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const unsigned long long count = words;
  const CUdeviceptr before = allocate(bytes);
  CHECK(cuMemsetD32(before, 1, words));
  CUcontext first, second;
  CHECK(cuCtxGetCurrent(&first));
  CUdevice device;
  CHECK(cuDeviceGet(&device, 1));
  CHECK(cuDevicePrimaryCtxRetain(&second, device));
  CHECK(cuCtxSetCurrent(second));
  CUmodule module;
  CUfunction combine;
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  CHECK(cuModuleGetFunction(&combine, module, "combine"));
  CHECK(cuCtxEnablePeerAccess(first, 0));
  std::printf("enabled again: %s\n", error_name(cuCtxEnablePeerAccess(first, 0)).c_str());
  const CUdeviceptr far = allocate(bytes);
  CHECK(cuMemsetD32(far, 2, words));
  CHECK(cuCtxSetCurrent(first));
  const CUdeviceptr after = allocate(bytes);
  CHECK(cuMemsetD32(after, 3, words));
  CHECK(cuCtxSynchronize());
  for (unsigned round = 0; round < 4; ++round) {
    CHECK(cuCtxSetCurrent(second));
    if (round == 3) {  // given up, and taken again after the memory has been away
      CHECK(cuCtxDisablePeerAccess(first));
      std::printf("disabled again: %s\n", error_name(cuCtxDisablePeerAccess(first)).c_str());
      program.pause();
      CHECK(cuCtxEnablePeerAccess(first, 0));
    }
    launch(combine, words, nullptr, far, before, after, count, round + 3);
    launch(combine, words, nullptr, before, far, before, count, round + 5);
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(first));
    launch(program.kernel("mix"), words, nullptr, after, count, round);
    CHECK(cuCtxSynchronize());
    program.pause();
  }
  print_device("before", before, bytes);
  print_device("after", after, bytes);
  CHECK(cuMemFree(before));
  CHECK(cuMemFree(after));
  CHECK(cuCtxSetCurrent(second));
  print_device("far", far, bytes);
  CHECK(cuMemFree(far));
  CHECK(cuModuleUnload(module));
  CHECK(cuDevicePrimaryCtxRelease(device));
  CHECK(cuCtxSetCurrent(first));
}
