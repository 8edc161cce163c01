// A libcuda.so.1 whose functions return at once, so that gate_bench measures what interposing
// costs. Each measured function has a second name that no preload knows, for the bare call.

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstring>

#define STUB extern "C" __attribute__((visibility("default")))

namespace {
const auto kContext = reinterpret_cast<CUcontext>(0x1000);
}

STUB CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }
STUB CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = kContext;
  return CUDA_SUCCESS;
}
STUB CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
STUB CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
STUB CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = kContext;
  return CUDA_SUCCESS;
}
STUB CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
STUB CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) {
  std::memset(uuid, 1, sizeof *uuid);
  return CUDA_SUCCESS;
}
STUB CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = size_t{1} << 30;
  return CUDA_SUCCESS;
}
STUB CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 1;
  return CUDA_SUCCESS;
}
STUB CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  *context = kContext;
  return CUDA_SUCCESS;
}

STUB CUresult cuLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                             unsigned int, unsigned int, unsigned int, CUstream, void**, void**) {
  return CUDA_SUCCESS;
}
STUB CUresult bare_launch(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                          unsigned int, unsigned int, unsigned int, CUstream, void**, void**)
    __attribute__((alias("cuLaunchKernel")));

STUB CUresult cuStreamQuery(CUstream) { return CUDA_SUCCESS; }
STUB CUresult bare_query(CUstream) __attribute__((alias("cuStreamQuery")));
