// Two devices, memory on both, work on both, copies between them. Runner: gpus=2
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

#include "tests/integration/programs/kernels.ptx.h"

int main() {
  Program program;
  const std::size_t bytes = 6 << 20, words = bytes / 4;
  const CUdeviceptr near = allocate(bytes);
  CHECK(cuMemsetD32(near, 1, words));
  CUcontext first, second;
  CHECK(cuCtxGetCurrent(&first));
  CUdevice device;
  CHECK(cuDeviceGet(&device, 1));
  CHECK(cuDevicePrimaryCtxRetain(&second, device));
  CHECK(cuCtxSetCurrent(second));
  CUmodule module;
  CUfunction mix;
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  CHECK(cuModuleGetFunction(&mix, module, "mix"));
  const CUdeviceptr far = allocate(bytes);
  CHECK(cuMemsetD32(far, 2, words));
  for (unsigned round = 0; round < 4; ++round) {
    launch(mix, words, nullptr, far, static_cast<unsigned long long>(words), round);
    CHECK(cuCtxSynchronize());
    program.pause();
    CHECK(cuMemcpyPeer(near, first, far, second, bytes / 2));
    CHECK(cuCtxSetCurrent(first));
    launch(program.kernel("mix"), words, nullptr, near, static_cast<unsigned long long>(words),
           round + 5);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyPeer(far + bytes / 2, second, near, first, bytes / 4));
    CHECK(cuCtxSetCurrent(second));
  }
  print_device("far", far, bytes);
  CHECK(cuMemFree(far));
  CHECK(cuModuleUnload(module));
  CHECK(cuDevicePrimaryCtxRelease(device));
  CHECK(cuCtxSetCurrent(first));
  print_device("near", near, bytes);
  CHECK(cuMemFree(near));
}
