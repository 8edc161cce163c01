#include <cstring>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/launch.h"

// "Execution Control [DEPRECATED]" of the driver API: launches of the time before cuLaunchKernel.
// Shape and arguments are set on the function, call by call.

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kMostArgumentBytes = 4096;

CUresult set_argument(Context* context, CUfunction handle, int offset, const void* value,
                      std::size_t bytes) {
  Function* function = nullptr;
  const CUresult result = find_function(handle, context, &function);
  if (result != CUDA_SUCCESS) return result;
  const auto begin = static_cast<std::size_t>(offset);
  if (offset < 0 || value == nullptr || begin + bytes > kMostArgumentBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<std::byte>& arguments = function->old_launch.arguments;
  if (arguments.size() < begin + bytes) arguments.resize(begin + bytes);
  std::memcpy(arguments.data() + begin, value, bytes);
  return CUDA_SUCCESS;
}

CUresult launch_old(Context* context, CUfunction handle, int width, int height, CUstream stream) {
  Function* function = nullptr;
  const CUresult result = find_function(handle, context, &function);
  if (result != CUDA_SUCCESS) return result;
  if (width < 1 || height < 1) return CUDA_ERROR_INVALID_VALUE;
  OldLaunch& old = function->old_launch;
  old.arguments.resize(std::max(old.arguments.size(), old.argument_bytes));
  std::size_t bytes = old.argument_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, old.arguments.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  const LaunchShape shape{{static_cast<unsigned>(width), static_cast<unsigned>(height), 1},
                          {old.block[0], old.block[1], old.block[2]},
                          old.shared_bytes};
  return launch(handle, shape, stream, false, nullptr, extra);
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  SIMGPU_ENTER_CONTEXT(cuFuncSetBlockShape);
  Function* function = nullptr;
  const CUresult result = find_function(hfunc, context, &function);
  if (result != CUDA_SUCCESS) return result;
  if (x < 1 || y < 1 || z < 1) return CUDA_ERROR_INVALID_VALUE;
  function->old_launch.block[0] = static_cast<unsigned>(x);
  function->old_launch.block[1] = static_cast<unsigned>(y);
  function->old_launch.block[2] = static_cast<unsigned>(z);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  SIMGPU_ENTER_CONTEXT(cuFuncSetSharedSize);
  Function* function = nullptr;
  const CUresult result = find_function(hfunc, context, &function);
  if (result == CUDA_SUCCESS) function->old_launch.shared_bytes = bytes;
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  SIMGPU_ENTER_CONTEXT(cuParamSetSize);
  Function* function = nullptr;
  const CUresult result = find_function(hfunc, context, &function);
  if (result != CUDA_SUCCESS) return result;
  if (numbytes > kMostArgumentBytes) return CUDA_ERROR_INVALID_VALUE;
  function->old_launch.argument_bytes = numbytes;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  SIMGPU_ENTER_CONTEXT(cuParamSeti);
  return set_argument(context, hfunc, offset, &value, sizeof(value));
}

SIMGPU_EXPORT CUresult CUDAAPI cuParamSetf(CUfunction hfunc, int offset, float value) {
  SIMGPU_ENTER_CONTEXT(cuParamSetf);
  return set_argument(context, hfunc, offset, &value, sizeof(value));
}

SIMGPU_EXPORT CUresult CUDAAPI cuParamSetv(CUfunction hfunc, int offset, void* ptr,
                                           unsigned int numbytes) {
  SIMGPU_ENTER_CONTEXT(cuParamSetv);
  return set_argument(context, hfunc, offset, ptr, numbytes);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLaunch(CUfunction f) {
  SIMGPU_ENTER_CONTEXT(cuLaunch);
  return launch_old(context, f, 1, 1, nullptr);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  SIMGPU_ENTER_CONTEXT(cuLaunchGrid);
  return launch_old(context, f, grid_width, grid_height, nullptr);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height,
                                                 CUstream hStream) {
  SIMGPU_ENTER_CONTEXT(cuLaunchGridAsync);
  return launch_old(context, f, grid_width, grid_height, hStream);
}
