// Contexts, primary and created, and each thread's stack of them.

#include <algorithm>

#include "tools/simgpu/driver/context_stack.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/memory_pool.h"
#include "tools/simgpu/driver/stream.h"

namespace plexrl::simgpu {
namespace {

CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }
Context* context_of(CUcontext handle) { return reinterpret_cast<Context*>(handle); }

bool is_ordinal(CUdevice device) {
  return device >= 0 && static_cast<std::size_t>(device) < driver()->visible.size();
}

int ordinal_of(const Context* context) {
  const auto& visible = driver()->visible;
  return static_cast<int>(std::find(visible.begin(), visible.end(), context->device) -
                          visible.begin());
}

CUresult create(CUcontext* handle, unsigned flags, CUdevice device) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = nullptr;
  if (const CUresult made = make_context(device, flags, &context); made != CUDA_SUCCESS)
    return made;
  context_stack().push_back(context);
  *handle = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult synchronize(Context* context) {
  std::vector<CompletionPtr> ends;
  {
    const std::lock_guard lock(context->mutex);
    for (const Stream* stream : context->streams) {
      if (CompletionPtr end = stream->last(); end != nullptr) ends.push_back(std::move(end));
    }
  }
  for (const CompletionPtr& end : ends) end->wait();
  trim_pools(context->device);
  return context->error.load();
}

/// The primary context of a device, if it is active.
Context* primary_of(CUdevice device) {
  return driver()->primaries[static_cast<std::size_t>(device)];
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags,
                                              CUdevice device) {
  SIMGPU_ENTER(cuCtxCreate_v2);
  return create(context, flags, device);
}
SIMGPU_EXPORT CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int count,
                                              unsigned int flags, CUdevice device) {
  SIMGPU_ENTER(cuCtxCreate_v3);
  if (count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(context, flags, device);
}
SIMGPU_EXPORT CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters,
                                              unsigned int flags, CUdevice device) {
  SIMGPU_ENTER(cuCtxCreate_v4);
  if (parameters != nullptr &&
      (parameters->numExecAffinityParams != 0 || parameters->cigParams != nullptr)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return create(context, flags, device);
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxDestroy_v2(CUcontext handle) {
  SIMGPU_ENTER(cuCtxDestroy_v2);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_context(handle) || context_of(handle)->is_primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (current_context() == context_of(handle)) context_stack().pop_back();
  destroy_context(context_of(handle));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext handle) {
  SIMGPU_ENTER(cuCtxPushCurrent_v2);
  if (!is_context(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(context_of(handle));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* handle) {
  SIMGPU_ENTER(cuCtxPopCurrent_v2);
  if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = handle_of(context_stack().back());
  context_stack().pop_back();
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle) {
  SIMGPU_ENTER(cuCtxSetCurrent);
  if (handle != nullptr && !is_context(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context_stack().empty()) context_stack().pop_back();
  if (handle != nullptr) context_stack().push_back(context_of(handle));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxGetCurrent(CUcontext* handle) {
  SIMGPU_ENTER(cuCtxGetCurrent);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = handle_of(current_context());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  SIMGPU_ENTER(cuCtxGetDevice);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = ordinal_of(current_context());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  SIMGPU_ENTER(cuCtxGetDevice_v2);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* const context = handle == nullptr ? current_context() : context_of(handle);
  if (context == nullptr || !is_context(handle_of(context))) return CUDA_ERROR_INVALID_CONTEXT;
  *device = ordinal_of(context);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  SIMGPU_ENTER_CONTEXT(cuCtxGetFlags);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxSetFlags(unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuCtxSetFlags);
  context->flags = flags;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long* id) {
  SIMGPU_ENTER(cuCtxGetId);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* const context = handle == nullptr ? current_context() : context_of(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!is_context(handle_of(context))) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *id = context->id;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  SIMGPU_ENTER(cuCtxGetApiVersion);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handle != nullptr && !is_context(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxSynchronize() {
  SIMGPU_ENTER_CONTEXT(cuCtxSynchronize);
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  if (const CUresult refused = refuse_in_capture(context); refused != CUDA_SUCCESS) return refused;
  return synchronize(context);
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle) {
  SIMGPU_ENTER(cuCtxSynchronize_v2);
  Context* const context = handle == nullptr ? current_context() : context_of(handle);
  if (context == nullptr || !is_context(handle_of(context))) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  if (const CUresult refused = refuse_in_capture(context); refused != CUDA_SUCCESS) return refused;
  return synchronize(context);
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SIMGPU_ENTER_CONTEXT(cuCtxGetStreamPriorityRange);
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxGetLimit(size_t* value, CUlimit limit) {
  SIMGPU_ENTER_CONTEXT(cuCtxGetLimit);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr std::size_t kDefaults[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0, 0};
  if (limit < 0 || static_cast<std::size_t>(limit) >= std::size(kDefaults))
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const std::uint64_t set = context->limits[limit].load();
  *value = set != 0 ? set : kDefaults[limit];
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
  SIMGPU_ENTER_CONTEXT(cuCtxSetLimit);
  if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  context->limits[limit].store(value);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* config) {
  SIMGPU_ENTER_CONTEXT(cuCtxGetCacheConfig);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache) {
  SIMGPU_ENTER_CONTEXT(cuCtxSetCacheConfig);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxResetPersistingL2Cache() {
  SIMGPU_ENTER_CONTEXT(cuCtxResetPersistingL2Cache);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
  SIMGPU_ENTER(cuDevicePrimaryCtxRetain);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  static std::mutex making;
  const std::lock_guard lock(making);
  Context*& primary = driver()->primaries[static_cast<std::size_t>(device)];
  if (primary == nullptr || !primary->alive.load()) {
    Context* made = nullptr;
    if (const CUresult result = make_context(device, 0, &made); result != CUDA_SUCCESS)
      return result;
    made->is_primary = true;
    primary = made;
  }
  ++primary->primary_uses;
  *handle = handle_of(primary);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SIMGPU_ENTER(cuDevicePrimaryCtxRelease_v2);
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context* const primary = primary_of(device);
  if (primary == nullptr || !primary->alive.load() || primary->primary_uses == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary->primary_uses == 0) destroy_context(primary);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device) {
  SIMGPU_ENTER(cuDevicePrimaryCtxReset_v2);
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context* const primary = primary_of(device);
  if (primary != nullptr && primary->alive.load()) destroy_context(primary);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  SIMGPU_ENTER(cuDevicePrimaryCtxSetFlags_v2);
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (Context* const primary = primary_of(device); primary != nullptr) primary->flags = flags;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags,
                                                          int* active) {
  SIMGPU_ENTER(cuDevicePrimaryCtxGetState);
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Context* const primary = primary_of(device);
  *flags = primary != nullptr ? primary->flags : 0;
  *active = primary != nullptr && primary->alive.load() ? 1 : 0;
  return CUDA_SUCCESS;
}
