#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

/// The driver functions that rlvr calls, found as frameworks find them: libcuda.so.1 by dlopen,
/// everything else by cuGetProcAddress. The members carry the driver's names, so
/// `driver().cuMemAlloc(...)` is a bare call.
namespace plexrl::workloads::rlvr {

// clang-format off
#define PLEXRL_RLVR_CALLS(X)                                                                       \
  X(cuInit) X(cuDeviceGet) X(cuDeviceGetCount)                                                     \
  X(cuDeviceGetName) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)                      \
  X(cuCtxSetCurrent) X(cuGetErrorName) X(cuModuleLoadData)                                         \
  X(cuModuleUnload) X(cuModuleGetFunction) X(cuMemAlloc)                                           \
  X(cuMemFree) X(cuMemsetD8Async) X(cuMemHostAlloc)                                                \
  X(cuMemFreeHost) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)                                       \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize)                                      \
  X(cuLaunchKernel)
// clang-format on

struct Driver {
#define X(name) decltype(&::name) name = nullptr;
  PLEXRL_RLVR_CALLS(X)
#undef X
};

/// A driver call that failed: the call's name and the error's name.
struct DriverError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Loads the driver at first use. Throws DriverError when there is none.
const Driver& driver();

/// Throws DriverError unless `result` is CUDA_SUCCESS.
void check(CUresult result, const char* call);

}  // namespace plexrl::workloads::rlvr
