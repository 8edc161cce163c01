// Access to a device's memory that is given up: while another context of the same two devices has
// it a kernel still reaches the memory, then none does, neither where the memory was left nor after
// it has been away. Contexts that failed so leave the memory as it was. Runner: gpus=2
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

#include "tests/integration/programs/kernels.ptx.h"

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;

/// A context of the second device, current, that may access memory of `owner`.
struct Side {
  CUcontext context;
  CUfunction mix;

  Side(CUdevice device, CUcontext owner) {
    CUmodule module;
    CHECK(cuCtxCreate(&context, nullptr, 0, device));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&mix, module, "mix"));
    CHECK(cuCtxEnablePeerAccess(owner, 0));
  }
  void disable(CUcontext owner) const {
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxDisablePeerAccess(owner));
  }
  void run(const char* when, CUdeviceptr data, unsigned add) const {
    CHECK(cuCtxSetCurrent(context));
    launch(mix, kWords, nullptr, data, static_cast<unsigned long long>(kWords), add);
    std::printf("%s: %s\n", when, error_name(cuCtxSynchronize()).c_str());
  }
};

}  // namespace

int main() {
  Program program;
  const CUdeviceptr data = allocate(kBytes);
  CHECK(cuMemsetD32(data, 1, kWords));
  CHECK(cuCtxSynchronize());
  CUcontext owner;
  CHECK(cuCtxGetCurrent(&owner));
  CUdevice device;
  CHECK(cuDeviceGet(&device, 1));
  const Side one(device, owner), other(device, owner);
  one.run("enabled", data, 1);
  other.run("enabled for another", data, 2);
  one.disable(owner);
  other.run("disabled for one", data, 3);
  program.pause();
  other.run("disabled for one, after a pause", data, 4);
  other.disable(owner);
  other.run("disabled for both", data, 5);
  CHECK(cuCtxSetCurrent(owner));
  const CUdeviceptr later = allocate(kBytes);
  CHECK(cuMemsetD32(later, 2, kWords));
  CHECK(cuCtxSynchronize());
  program.pause();
  one.run("disabled for both, after a pause", later, 6);
  CHECK(cuCtxSetCurrent(owner));
  print_device("data", data, kBytes);
  print_device("later", later, kBytes);
  CHECK(cuMemFree(data));
  CHECK(cuMemFree(later));
}
