// Plain device memory, pinned host memory, and access between devices.

#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>

#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/memory_pool.h"
#include "tools/simgpu/driver/stream.h"

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kPitchAlignment = 512;

std::uint64_t address_of(const void* host) { return reinterpret_cast<std::uint64_t>(host); }

/// Whether a context of the same device, other than `context`, may access memory of `device`.
bool another_reaches(const Context& context, int device) {
  const std::lock_guard lock(driver()->mutex);
  const auto& all = driver()->contexts;
  return std::any_of(all.begin(), all.end(), [&](const Context* one) {
    return one != &context && one->device == context.device &&
           (one->peers.load() >> device & 1) != 0;
  });
}

CUresult allocate_host(Context* context, void** host, std::size_t bytes, unsigned flags) {
  if (host == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  madvise(memory, bytes, MADV_HUGEPAGE);
  madvise(memory, bytes, MADV_POPULATE_WRITE);  // pinned memory is there from the start; older
                                                // kernels fault it in later
  Range range;
  range.base = address_of(memory);
  range.bytes = bytes;
  range.kind = Range::Kind::kHost;
  range.device = context->device;
  range.context = context;
  range.id = driver()->addresses.next_id();
  range.host_flags = flags;
  driver()->addresses.add(range);
  *host = memory;
  return CUDA_SUCCESS;
}

CUresult free_host(void* host) {
  const auto range = driver()->addresses.find(address_of(host));
  if (host == nullptr || !range || range->base != address_of(host) ||
      range->kind != Range::Kind::kHost) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // As the driver's: work that still uses it ends first.
  if (range->context != nullptr) finish_all_work(static_cast<Context*>(range->context));
  driver()->addresses.remove(range->base, nullptr);
  munmap(host, range->bytes);
  return CUDA_SUCCESS;
}

CUresult register_host(Context* context, void* host, std::size_t bytes, unsigned flags) {
  if (host == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  constexpr std::uint64_t kPage = 4096;
  if (driver()->addresses.find(address_of(host)) ||
      driver()->addresses.find(address_of(host) + bytes - 1)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  // Pinning faults every page in; what isn't mapped can't be pinned.
  unsigned char seen = 0;
  for (std::uint64_t page = address_of(host) / kPage * kPage; page < address_of(host) + bytes;
       page += kPage) {
    if (mincore(reinterpret_cast<void*>(page), 1, &seen) != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  Range range;
  range.base = address_of(host);
  range.bytes = bytes;
  range.kind = Range::Kind::kHostRegistered;
  range.device = context->device;
  range.context = context;
  range.id = driver()->addresses.next_id();
  range.host_flags = flags;
  driver()->addresses.add(range);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  SIMGPU_ENTER_CONTEXT(cuMemAlloc_v2);
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  std::uint64_t address = 0;
  const CUresult result = allocate_device(context, bytes, &address);
  if (result == CUDA_SUCCESS) *pointer = address;
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width,
                                                  size_t height, unsigned int element_bytes) {
  SIMGPU_ENTER_CONTEXT(cuMemAllocPitch_v2);
  if (pointer == nullptr || pitch == nullptr || width == 0 || height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  std::size_t bytes = 0;
  if (row < width || __builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::uint64_t address = 0;
  const CUresult result = allocate_device(context, bytes, &address);
  if (result == CUDA_SUCCESS) {
    *pointer = address;
    *pitch = row;
  }
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemFree_v2(CUdeviceptr pointer) {
  SIMGPU_ENTER(cuMemFree_v2);
  if (pointer == 0) return CUDA_SUCCESS;
  const auto range = driver()->addresses.find(pointer);
  if (range && range->kind == Range::Kind::kPool) {
    Context* context = nullptr;
    if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
    finish_all_work(context);
    return free_pool_memory(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (!range || range->base != pointer || range->context == nullptr ||
      range->kind == Range::Kind::kArray) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* const owner = static_cast<Context*>(range->context);
  if (const CUresult error = owner->error.load(); error != CUDA_SUCCESS) return error;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  finish_all_work(owner);  // nothing that runs may lose its memory
  return free_device(pointer);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  SIMGPU_ENTER_CONTEXT(cuMemGetInfo_v2);
  if (free_bytes != nullptr) *free_bytes = driver()->machine->free_bytes(context->device);
  if (total_bytes != nullptr) *total_bytes = driver()->machine->total_bytes(context->device);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemHostAlloc(void** host, size_t bytes, unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuMemHostAlloc);
  return allocate_host(context, host, bytes, flags);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemAllocHost_v2(void** host, size_t bytes) {
  SIMGPU_ENTER_CONTEXT(cuMemAllocHost_v2);
  return allocate_host(context, host, bytes, 0);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemFreeHost(void* host) {
  SIMGPU_ENTER(cuMemFreeHost);
  return free_host(host);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemHostRegister_v2(void* host, size_t bytes, unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuMemHostRegister_v2);
  return register_host(context, host, bytes, flags);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemHostUnregister(void* host) {
  SIMGPU_ENTER(cuMemHostUnregister);
  const auto range = driver()->addresses.find(address_of(host));
  if (!range || range->base != address_of(host) || range->kind != Range::Kind::kHostRegistered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  driver()->addresses.remove(range->base, nullptr);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* host,
                                                            unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuMemHostGetDevicePointer_v2);
  const auto range = driver()->addresses.find(address_of(host));
  if (pointer == nullptr || flags != 0 || !range || driver()->addresses.in_arena(range->base))
    return CUDA_ERROR_INVALID_VALUE;
  *pointer = address_of(host);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemHostGetFlags(unsigned int* flags, void* host) {
  SIMGPU_ENTER_CONTEXT(cuMemHostGetFlags);
  const auto range = driver()->addresses.find(address_of(host));
  if (flags == nullptr || !range || range->kind != Range::Kind::kHost)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = range->host_flags;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuCtxEnablePeerAccess);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_context(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  const auto* const other = reinterpret_cast<Context*>(peer);
  if (other->device == context->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if ((context->peers.fetch_or(1 << other->device) >> other->device & 1) != 0) {
    return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  }
  for (const Range& range : driver()->addresses.ranges_of(other)) {
    if (!driver()->addresses.in_arena(range.base) || range.kind == Range::Kind::kManaged) continue;
    driver()->addresses.share(other->device, context->device, range.base, range.bytes);
  }
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
  SIMGPU_ENTER_CONTEXT(cuCtxDisablePeerAccess);
  if (!is_context(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  const auto* const other = reinterpret_cast<Context*>(peer);
  if ((context->peers.fetch_and(~(1 << other->device)) >> other->device & 1) == 0)
    return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  // Contexts of one device share its address space: another of them may have the access still.
  if (another_reaches(*context, other->device)) return CUDA_SUCCESS;
  for (const Range& range : driver()->addresses.ranges_of(other)) {
    if (driver()->addresses.in_arena(range.base) && range.kind != Range::Kind::kManaged)
      driver()->addresses.unmap(context->device, range.base, range.bytes);
  }
  return CUDA_SUCCESS;
}
