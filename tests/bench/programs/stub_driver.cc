// A libcuda.so.1 whose functions return at once, so that gate_bench measures what interposing
// costs.

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <atomic>
#include <cstring>

#define STUB extern "C" __attribute__((visibility("default")))

namespace {

const auto kContext = reinterpret_cast<CUcontext>(0x1000);

/// Addresses that nobody else gets, in units of 2 MiB.
CUdeviceptr take_addresses(size_t bytes) {
  static std::atomic<CUdeviceptr> next{CUdeviceptr{1} << 44};
  const size_t unit = size_t{2} << 20;
  return next.fetch_add((bytes + unit - 1) / unit * unit, std::memory_order_relaxed);
}

}  // namespace

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

// ---- What the shim itself calls

STUB CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
STUB CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
STUB CUresult cuEventCreate(CUevent* event, unsigned int) {
  *event = reinterpret_cast<CUevent>(0x3000);
  return CUDA_SUCCESS;
}
STUB CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
STUB CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
STUB CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                                  unsigned long long) {
  *address = take_addresses(bytes);
  return CUDA_SUCCESS;
}
STUB CUresult cuMemAddressFree(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
STUB CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                            CUmemAllocationGranularity_flags) {
  *bytes = size_t{2} << 20;
  return CUDA_SUCCESS;
}
STUB CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                          unsigned long long) {
  *handle = 1;
  return CUDA_SUCCESS;
}
STUB CUresult cuMemRelease(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
STUB CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                       unsigned long long) {
  return CUDA_SUCCESS;
}
STUB CUresult cuMemUnmap(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
STUB CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}
STUB CUresult cuDeviceGetGraphMemAttribute(CUdevice, CUgraphMem_attribute, void* value) {
  std::memset(value, 0, sizeof(cuuint64_t));
  return CUDA_SUCCESS;
}

// ---- What is measured, each under a second name that no preload knows

#define MEASURED(name, parameters, ...)                                           \
  STUB CUresult name parameters{__VA_ARGS__} STUB CUresult bare_##name parameters \
      __attribute__((alias(#name)));

MEASURED(cuLaunchKernel,
         (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
          unsigned int, unsigned int, CUstream, void**, void**),
         return CUDA_SUCCESS;)
MEASURED(cuStreamQuery, (CUstream), return CUDA_SUCCESS;)
MEASURED(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream), return CUDA_SUCCESS;)
MEASURED(cuEventRecord, (CUevent, CUstream), return CUDA_SUCCESS;)
MEASURED(cuEventQuery, (CUevent), return CUDA_SUCCESS;)
MEASURED(cuGraphLaunch, (CUgraphExec, CUstream), return CUDA_SUCCESS;)
MEASURED(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), *address = take_addresses(bytes);
         return CUDA_SUCCESS;)
MEASURED(cuMemFree_v2, (CUdeviceptr), return CUDA_SUCCESS;)
