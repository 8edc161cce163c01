// Memory pools and stream-ordered allocation ("Stream Ordered Memory Allocator", CUDA driver API).

#include <sys/random.h>

#include <algorithm>
#include <memory>
#include <set>

#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/entry_pair.h"
#include "tools/simgpu/driver/memory_pool.h"

namespace plexrl::simgpu {
namespace {

/// Guards the sets below. A pool that was destroyed while memory of it lives is in `leaving` only.
std::mutex pools_mutex;
auto& pools = *new std::set<MemoryPool*>;
auto& leaving = *new std::set<MemoryPool*>;
MemoryPool* default_pools[kMaxDevices];
MemoryPool* current_pools[kMaxDevices];  ///< nullptr: the default one

bool is_ordinal(int device) {
  return device >= 0 && static_cast<std::size_t>(device) < driver()->visible.size();
}
int device_of(int ordinal) { return driver()->visible[static_cast<std::size_t>(ordinal)]; }
CUmemoryPool handle_of(MemoryPool* pool) { return reinterpret_cast<CUmemoryPool>(pool); }

MemoryPool* default_pool(int device) {
  const std::lock_guard lock(pools_mutex);
  MemoryPool*& pool = default_pools[device];
  if (pool == nullptr) {
    pool = new MemoryPool(device, 0);
    pools.insert(pool);
  }
  return pool;
}

MemoryPool* current_pool(int device) {
  {
    const std::lock_guard lock(pools_mutex);
    if (current_pools[device] != nullptr) return current_pools[device];
  }
  return default_pool(device);
}

/// Deletes pools that were destroyed and whose memory has all come back since.
void sweep_leaving() {
  std::vector<MemoryPool*> unused;
  {
    const std::lock_guard lock(pools_mutex);
    for (auto one = leaving.begin(); one != leaving.end();) {
      if ((*one)->is_unused()) {
        unused.push_back(*one);
        one = leaving.erase(one);
      } else {
        ++one;
      }
    }
  }
  for (MemoryPool* pool : unused) {
    pool->trim(0);
    delete pool;
  }
}

/// nullptr for a pool: the current one of the stream's device.
CUresult allocate_async(bool per_thread, CUdeviceptr* pointer, std::size_t bytes,
                        CUmemoryPool* handle, CUstream stream_handle) {
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(stream_handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  if (const CUresult error = stream->context()->error.load(); error != CUDA_SUCCESS) return error;
  MemoryPool* const pool =
      handle == nullptr ? current_pool(stream->context()->device) : find_pool(*handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t address = 0;
  if (stream->capture.load() != nullptr) {
    const CUresult captured = capture_allocation(stream, bytes, &address);
    if (captured == CUDA_SUCCESS) *pointer = address;
    return captured;
  }
  const CUresult result = pool->allocate(bytes, stream, &address);
  if (result == CUDA_SUCCESS) *pointer = address;
  return result;
}

CUresult allocate_async_current(bool per_thread, CUdeviceptr* pointer, std::size_t bytes,
                                CUstream stream) {
  return allocate_async(per_thread, pointer, bytes, nullptr, stream);
}

CUresult allocate_async_from(bool per_thread, CUdeviceptr* pointer, std::size_t bytes,
                             CUmemoryPool pool, CUstream stream) {
  return allocate_async(per_thread, pointer, bytes, &pool, stream);
}

CUresult free_async(bool per_thread, CUdeviceptr pointer, CUstream stream_handle) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(stream_handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  if (pointer == 0) return CUDA_SUCCESS;
  if (stream->capture.load() != nullptr) return capture_free(stream, pointer);
  const auto range = driver()->addresses.find(pointer);
  if (!range || range->base != pointer) return CUDA_ERROR_INVALID_VALUE;
  if (range->kind == Range::Kind::kDevice) {  // memory of cuMemAlloc may come here too
    stream->synchronize();
    return free_device(pointer);
  }
  if (range->kind != Range::Kind::kPool) return CUDA_ERROR_INVALID_VALUE;
  auto* const pool = static_cast<MemoryPool*>(range->pool);
  if (!pool->take(pointer)) return CUDA_ERROR_INVALID_VALUE;
  CompletionPtr end;
  const CUresult result =
      submit(stream_handle, per_thread, std::make_unique<EmptyOperation>(), &end);
  if (result != CUDA_SUCCESS) {
    pool->keep(pointer);
    return result;
  }
  pool->give_back(pointer, stream, std::move(end));
  sweep_leaving();
  return CUDA_SUCCESS;
}

CUresult check_location(const CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return is_ordinal(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult set_current(int ordinal, CUmemoryPool handle) {
  MemoryPool* const pool = find_pool(handle);
  if (pool == nullptr || pool->device() != device_of(ordinal) || pool->is_imported())
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(pools_mutex);
  current_pools[pool->device()] = pool;
  return CUDA_SUCCESS;
}

}  // namespace

MemoryPool* find_pool(CUmemoryPool handle) {
  const std::lock_guard lock(pools_mutex);
  auto* const pool = reinterpret_cast<MemoryPool*>(handle);
  return pools.count(pool) != 0 ? pool : nullptr;
}

CUmemoryPool keep_pool(MemoryPool* pool) {
  const std::lock_guard lock(pools_mutex);
  pools.insert(pool);
  return handle_of(pool);
}

void trim_pools(int device) {
  const std::lock_guard lock(pools_mutex);
  for (MemoryPool* pool : pools) {
    if (pool->device() == device) pool->trim_to_threshold();
  }
}

bool free_pool_memory(std::uint64_t address) {
  const auto range = driver()->addresses.find(address);
  if (!range || range->base != address || range->kind != Range::Kind::kPool) return false;
  auto* const pool = static_cast<MemoryPool*>(range->pool);
  if (!pool->take(address)) return false;
  pool->give_back(address, nullptr, nullptr);
  sweep_leaving();
  return true;
}

}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_PAIR(cuMemAllocAsync, _ptsz, allocate_async_current,
            (CUdeviceptr * pointer, size_t bytes, CUstream stream), pointer, bytes, stream)
SIMGPU_PAIR(cuMemAllocFromPoolAsync, _ptsz, allocate_async_from,
            (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream), pointer,
            bytes, pool, stream)
SIMGPU_PAIR(cuMemFreeAsync, _ptsz, free_async, (CUdeviceptr pointer, CUstream stream), pointer,
            stream)

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  SIMGPU_ENTER(cuMemPoolCreate);
  if (pool == nullptr || props == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_location(&props->location, props->allocType);
      result != CUDA_SUCCESS)
    return result;
  const bool is_shareable = props->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!is_shareable && props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_NOT_SUPPORTED;
  std::uint64_t tag = 0;
  if (is_shareable && getrandom(&tag, sizeof tag, 0) != sizeof tag)
    return CUDA_ERROR_OPERATING_SYSTEM;
  *pool = keep_pool(new MemoryPool(device_of(props->location.id), props->maxSize, tag));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle) {
  SIMGPU_ENTER(cuMemPoolDestroy);
  MemoryPool* const pool = find_pool(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard lock(pools_mutex);
    if (default_pools[pool->device()] == pool) return CUDA_ERROR_INVALID_VALUE;
    if (current_pools[pool->device()] == pool) current_pools[pool->device()] = nullptr;
    pools.erase(pool);
    leaving.insert(pool);  // what is allocated from it stays valid until it is freed
  }
  sweep_leaving();
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  SIMGPU_ENTER(cuMemPoolTrimTo);
  MemoryPool* const pool = find_pool(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  pool->trim(keep_bytes);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle,
                                                     CUmemPool_attribute attribute, void* value) {
  SIMGPU_ENTER(cuMemPoolSetAttribute);
  MemoryPool* const pool = find_pool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return pool->set_attribute(attribute, value);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle,
                                                     CUmemPool_attribute attribute, void* value) {
  SIMGPU_ENTER(cuMemPoolGetAttribute);
  MemoryPool* const pool = find_pool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return pool->get_attribute(attribute, value);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle,
                                                  const CUmemAccessDesc* descriptions,
                                                  size_t count) {
  SIMGPU_ENTER(cuMemPoolSetAccess);
  MemoryPool* const pool = find_pool(handle);
  if (pool == nullptr || (descriptions == nullptr && count > 0)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const CUmemLocation& location = descriptions[i].location;
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_ordinal(location.id))
      return CUDA_ERROR_INVALID_VALUE;
    // The pool's own device can't lose access.
    if (device_of(location.id) == pool->device() &&
        descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_DEVICE;
  }
  for (std::size_t i = 0; i < count; ++i)
    pool->set_access(device_of(descriptions[i].location.id), descriptions[i].flags);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                                                  CUmemLocation* location) {
  SIMGPU_ENTER(cuMemPoolGetAccess);
  MemoryPool* const pool = find_pool(handle);
  if (pool == nullptr || flags == nullptr || location == nullptr ||
      location->type != CU_MEM_LOCATION_TYPE_DEVICE || !is_ordinal(location->id))
    return CUDA_ERROR_INVALID_VALUE;
  *flags = pool->access(device_of(location->id));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetDefaultMemPool);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  *pool = handle_of(default_pool(device_of(device)));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetMemPool);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  *pool = handle_of(current_pool(device_of(device)));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  SIMGPU_ENTER(cuDeviceSetMemPool);
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  return set_current(device, pool);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                                      CUmemAllocationType type) {
  SIMGPU_ENTER(cuMemGetDefaultMemPool);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_location(location, type); result != CUDA_SUCCESS) return result;
  *pool = handle_of(default_pool(device_of(location->id)));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                               CUmemAllocationType type) {
  SIMGPU_ENTER(cuMemGetMemPool);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_location(location, type); result != CUDA_SUCCESS) return result;
  *pool = handle_of(current_pool(device_of(location->id)));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                                               CUmemoryPool pool) {
  SIMGPU_ENTER(cuMemSetMemPool);
  if (const CUresult result = check_location(location, type); result != CUDA_SUCCESS) return result;
  return set_current(location->id, pool);
}
