#include <algorithm>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/function_attributes.h"
#include "tools/simgpu/driver/occupancy.h"

// "Execution Control" but for launches, and "Occupancy" of the driver API.

namespace plexrl::simgpu {
namespace {

const Architecture& device_architecture() { return architecture(driver()->machine->spec().sm); }

CUresult max_active_blocks(Context* context, int* blocks, CUfunction handle, int threads,
                           std::size_t dynamic_shared, unsigned flags) {
  if (blocks == nullptr || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Function* function = nullptr;
  const CUresult result = find_function(handle, context, &function);
  if (result != CUDA_SUCCESS) return result;
  *blocks =
      blocks_per_sm(ptx::info(*function->kernel), device_architecture(), threads, dynamic_shared);
  return CUDA_SUCCESS;
}

// The block size with the most resident threads; the larger one of two that are equal.
CUresult best_block_size(Context* context, int* grid, int* block, CUfunction handle,
                         CUoccupancyB2DSize shared_of, std::size_t dynamic_shared, int limit,
                         unsigned flags) {
  if (grid == nullptr || block == nullptr || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Function* function = nullptr;
  const CUresult result = find_function(handle, context, &function);
  if (result != CUDA_SUCCESS) return result;
  const ptx::KernelInfo& kernel = ptx::info(*function->kernel);
  int most = std::min(kernel.max_threads, kMaxThreadsPerBlock);
  if (limit > 0) most = std::min(most, limit);
  int best_threads = 0;
  *grid = 0;
  *block = 0;
  for (int threads = most; threads > 0; threads = (threads - 1) / kWarp * kWarp) {
    const std::size_t shared = shared_of != nullptr ? shared_of(threads) : dynamic_shared;
    const int blocks = blocks_per_sm(kernel, device_architecture(), threads, shared);
    if (blocks * threads <= best_threads) continue;
    best_threads = blocks * threads;
    *block = threads;
    *grid = blocks * driver()->machine->spec().sms;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuFuncGetAttribute(int* pi, CUfunction_attribute attrib,
                                                  CUfunction hfunc) {
  SIMGPU_ENTER_CONTEXT(cuFuncGetAttribute);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  const CUresult result = find_function(hfunc, context, &function);
  return result != CUDA_SUCCESS ? result : get_attribute(*function, attrib, pi);
}

SIMGPU_EXPORT CUresult CUDAAPI cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib,
                                                  int value) {
  SIMGPU_ENTER_CONTEXT(cuFuncSetAttribute);
  Function* function = nullptr;
  const CUresult result = find_function(hfunc, context, &function);
  return result != CUDA_SUCCESS ? result : set_attribute(function, attrib, value);
}

SIMGPU_EXPORT CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  SIMGPU_ENTER_CONTEXT(cuFuncSetCacheConfig);
  if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  return find_function(hfunc, context, &function);
}

SIMGPU_EXPORT CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  SIMGPU_ENTER_CONTEXT(cuFuncSetSharedMemConfig);
  if (config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  return find_function(hfunc, context, &function);
}

SIMGPU_EXPORT CUresult CUDAAPI cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  SIMGPU_ENTER_CONTEXT(cuFuncGetModule);
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  const CUresult result = find_function(hfunc, context, &function);
  if (result == CUDA_SUCCESS) *hmod = reinterpret_cast<CUmodule>(function->module);
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction hfunc) {
  SIMGPU_ENTER_CONTEXT(cuFuncGetName);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  const CUresult result = find_function(hfunc, context, &function);
  if (result == CUDA_SUCCESS) *name = ptx::info(*function->kernel).name.c_str();
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuFuncGetParamInfo(CUfunction func, size_t paramIndex,
                                                  size_t* paramOffset, size_t* paramSize) {
  SIMGPU_ENTER_CONTEXT(cuFuncGetParamInfo);
  Function* function = nullptr;
  const CUresult result = find_function(func, context, &function);
  return result != CUDA_SUCCESS ? result
                                : parameter_info(*function, paramIndex, paramOffset, paramSize);
}

// Everything is loaded with its module.
SIMGPU_EXPORT CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction hfunc) {
  SIMGPU_ENTER_CONTEXT(cuFuncIsLoaded);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  const CUresult result = find_function(hfunc, context, &function);
  if (result == CUDA_SUCCESS) *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuFuncLoad(CUfunction hfunc) {
  SIMGPU_ENTER_CONTEXT(cuFuncLoad);
  Function* function = nullptr;
  return find_function(hfunc, context, &function);
}

SIMGPU_EXPORT CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks,
                                                                           CUfunction func,
                                                                           int blockSize,
                                                                           size_t dynamicSMemSize) {
  SIMGPU_ENTER_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  return max_active_blocks(context, numBlocks, func, blockSize, dynamicSMemSize, 0);
}

SIMGPU_EXPORT CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  return max_active_blocks(context, numBlocks, func, blockSize, dynamicSMemSize, flags);
}

SIMGPU_EXPORT CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(
    int* minGridSize, int* blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit) {
  SIMGPU_ENTER_CONTEXT(cuOccupancyMaxPotentialBlockSize);
  return best_block_size(context, minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                         dynamicSMemSize, blockSizeLimit, 0);
}

SIMGPU_EXPORT CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(
    int* minGridSize, int* blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
    unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuOccupancyMaxPotentialBlockSizeWithFlags);
  return best_block_size(context, minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                         dynamicSMemSize, blockSizeLimit, flags);
}

SIMGPU_EXPORT CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize,
                                                                       CUfunction func,
                                                                       int numBlocks,
                                                                       int blockSize) {
  SIMGPU_ENTER_CONTEXT(cuOccupancyAvailableDynamicSMemPerBlock);
  if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Function* function = nullptr;
  const CUresult result = find_function(func, context, &function);
  if (result != CUDA_SUCCESS) return result;
  *dynamicSmemSize =
      dynamic_shared_for(ptx::info(*function->kernel), device_architecture(), numBlocks, blockSize);
  return CUDA_SUCCESS;
}
