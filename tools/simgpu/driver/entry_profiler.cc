#include "tools/simgpu/driver/driver.h"

// "Profiler Control" of the driver API. There is no profiler; starting and stopping it succeeds, as
// it does where none is attached.

using namespace plexrl::simgpu;

// "Starting with CUDA 12.0, it always returns CUDA_ERROR_NOT_SUPPORTED."
SIMGPU_EXPORT CUresult CUDAAPI cuProfilerInitialize(const char*, const char*, CUoutput_mode) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

SIMGPU_EXPORT CUresult CUDAAPI cuProfilerStart(void) {
  SIMGPU_ENTER_CONTEXT(cuProfilerStart);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuProfilerStop(void) {
  SIMGPU_ENTER_CONTEXT(cuProfilerStop);
  return CUDA_SUCCESS;
}
