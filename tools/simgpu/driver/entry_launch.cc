#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/launch.h"
#include "tools/simgpu/driver/stream.h"

// Kernel launches of "Execution Control" of the driver API.

namespace plexrl::simgpu {
namespace {

// Attributes that change what a launch means; others are hints, or belong to hardware that a device
// of this kind lacks.
CUresult apply(const CUlaunchAttribute& attribute, LaunchShape* shape) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      shape->is_cooperative = attribute.value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      const auto& cluster = attribute.value.clusterDim;
      return cluster.x * cluster.y * cluster.z <= 1 ? CUDA_SUCCESS
                                                    : CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult launch_ex(const CUlaunchConfig* config, CUfunction handle, bool per_thread,
                   void** pointers, void** extra) {
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ},
                    config->sharedMemBytes};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUresult result = apply(config->attrs[i], &shape);
    if (result != CUDA_SUCCESS) return result;
  }
  return launch(handle, shape, config->hStream, per_thread, pointers, extra);
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned int gridDimX,
                                              unsigned int gridDimY, unsigned int gridDimZ,
                                              unsigned int blockDimX, unsigned int blockDimY,
                                              unsigned int blockDimZ, unsigned int sharedMemBytes,
                                              CUstream hStream, void** kernelParams, void** extra) {
  SIMGPU_ENTER_CONTEXT(cuLaunchKernel);
  return launch(f,
                {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes},
                hStream, false, kernelParams, extra);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX,
                                                   unsigned int gridDimY, unsigned int gridDimZ,
                                                   unsigned int blockDimX, unsigned int blockDimY,
                                                   unsigned int blockDimZ,
                                                   unsigned int sharedMemBytes, CUstream hStream,
                                                   void** kernelParams, void** extra) {
  SIMGPU_ENTER_CONTEXT(cuLaunchKernel);
  return launch(f,
                {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes},
                hStream, true, kernelParams, extra);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f,
                                                void** kernelParams, void** extra) {
  SIMGPU_ENTER_CONTEXT(cuLaunchKernelEx);
  return launch_ex(config, f, false, kernelParams, extra);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f,
                                                     void** kernelParams, void** extra) {
  SIMGPU_ENTER_CONTEXT(cuLaunchKernelEx);
  return launch_ex(config, f, true, kernelParams, extra);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLaunchCooperativeKernel(
    CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
    unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void** kernelParams) {
  SIMGPU_ENTER_CONTEXT(cuLaunchCooperativeKernel);
  return launch(
      f, {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, true},
      hStream, false, kernelParams, nullptr);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLaunchCooperativeKernel_ptsz(
    CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
    unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream hStream, void** kernelParams) {
  SIMGPU_ENTER_CONTEXT(cuLaunchCooperativeKernel);
  return launch(
      f, {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, true},
      hStream, true, kernelParams, nullptr);
}
