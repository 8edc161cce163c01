#include <sys/random.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/contexts.h"
#include "shim/counted.h"
#include "shim/driver_scope.h"
#include "shim/guarded.h"
#include "shim/process.h"
#include "shim/room.h"

/// Stream-ordered allocation and memory pools (CUDA driver API reference, "Stream Ordered Memory
/// Allocator"). Inside a capture an allocation is a node of the graph and stays the driver's; so do
/// pools of host memory, of handle types that reach other machines, and of devices without virtual
/// memory; and what other processes may import with --export=real. Pools between processes of the
/// job: pool_share_handlers.cc.

namespace plexrl::shim {
namespace {

std::uint64_t this_thread() noexcept {
  static constinit std::atomic<std::uint64_t> count{0};
  thread_local const std::uint64_t number = ++count;
  return number;
}

/// A name for a shared pool that nobody guesses; 0, a pool that is not shared, without randomness.
std::uint64_t new_tag() noexcept {
  std::uint64_t tag = 0;
  const int saved_errno = errno;
  if (::getrandom(&tag, sizeof tag, 0) != sizeof tag) tag = 0;
  errno = saved_errno;
  return tag;
}

struct Place {
  StreamKey stream;
  CUdevice device = 0;
};

/// Where a call on `stream` is ordered. None: the stream captures, or the driver has an error for
/// it.
std::optional<Place> place_of(CUstream stream, bool is_per_thread) {
  const CUstream named = interpose_stream(stream, is_per_thread);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver.cuStreamIsCapturing(named, &status) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_NONE) {
    return std::nullopt;
  }
  Place place;
  place.stream.stream = named;
  if (named == CU_STREAM_PER_THREAD) place.stream.thread = this_thread();
  const RelaxedCapture relaxed;
  if (driver.cuStreamGetCtx(named, &place.stream.context) != CUDA_SUCCESS) return std::nullopt;
  const PushedContext pushed(place.stream.context);
  // A stream of a context that has failed, while another is current: the driver has its error.
  if (!pushed.ok() || context_error() != CUDA_SUCCESS) return std::nullopt;
  if (driver.cuCtxGetDevice(&place.device) != CUDA_SUCCESS) return std::nullopt;
  return place;
}

/// The shared process with `place`'s device attached, if that can be paged.
Process* pageable_process(const Place& place) {
  Process* const process = Process::start();
  if (process == nullptr ||
      process->use(place.stream.context, place.device) != Devices::Attach::kAttached) {
    return nullptr;
  }
  const auto attached = process->devices.find(place.device);
  return attached && attached->has_vmm ? process : nullptr;
}

/// `pool` null: the device's current one.
template <typename Call>
CUresult allocate_async(interpose::Api api, CUdeviceptr* out, std::size_t bytes,
                        const CUmemoryPool* pool, CUstream stream, bool is_per_thread, Call call) {
  return guarded([&] {
    // A pool of the driver's mostly gives out what it has already; where it needs more, neighbours
    // are evicted for it (invariant 6).
    bool lacks_room = false;
    const auto counted = [&](interpose::UnpageableKind kind) {
      const auto try_once = [&] {
        lacks_room = false;
        return count_call(
            {api, kind, bytes, interpose_stream(stream, is_per_thread)},
            [&] {
              const CUresult allocated = call();
              lacks_room = allocated == CUDA_ERROR_OUT_OF_MEMORY;
              return allocated;
            },
            [&] { return *out; });
      };
      const CUresult result = try_once();
      const auto current = lacks_room ? current_context() : std::nullopt;
      return current ? with_room(current->device, try_once) : result;
    };
    // The driver knows the errors of bad arguments.
    if (out == nullptr || bytes == 0) return call();
    const auto place = place_of(stream, is_per_thread);
    if (!place) return call();
    Process* const process = pageable_process(*place);
    if (process == nullptr) return counted(interpose::UnpageableKind::kPool);
    CUmemoryPool handle = pool == nullptr ? nullptr : *pool;
    if (pool == nullptr && driver.cuDeviceGetMemPool(&handle, place->device) != CUDA_SUCCESS) {
      return call();
    }
    if (!process->pools.is_ours(handle)) return counted(interpose::UnpageableKind::kPool);
    std::uint64_t address = 0;
    const CUresult result = process->pools.allocate(handle, bytes, place->stream, &address);
    if (result == CUDA_SUCCESS) *out = address;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) process->devices.explain_refusal(place->device, bytes);
    process->agent.notify();
    return result;
  });
}

template <typename Call>
CUresult free_async(CUdeviceptr address, CUstream stream, bool is_per_thread, Call call) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    if (process == nullptr) return call();
    if (process->pools.find(address)) {
      const auto place = place_of(stream, is_per_thread);
      // In a capture a free node takes memory of the graph only: the driver refuses.
      if (!place) return call();
      const auto freed = process->pools.free(address, place->stream);
      return freed ? *freed : call();
    }
    // Memory of cuMemAlloc may come here too.
    if (const auto freed = process->memory.free(address)) return *freed;
    return free_counted(address, call);
  });
}

Process* process_of(CUmemoryPool pool) {
  Process* const process = Process::start();
  return process != nullptr && process->pools.is_ours(pool) ? process : nullptr;
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) noexcept {
  return allocate_async(interpose::Api::cuMemAllocAsync, dptr, bytesize, nullptr, hStream, false,
                        [&] { return driver.cuMemAllocAsync(dptr, bytesize, hStream); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) noexcept {
  return allocate_async(interpose::Api::cuMemAllocAsync_ptsz, dptr, bytesize, nullptr, hStream,
                        true, [&] { return driver.cuMemAllocAsync_ptsz(dptr, bytesize, hStream); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) noexcept {
  return allocate_async(
      interpose::Api::cuMemAllocFromPoolAsync, dptr, bytesize, &pool, hStream, false,
      [&] { return driver.cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream); });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) noexcept {
  return allocate_async(
      interpose::Api::cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, &pool, hStream, true,
      [&] { return driver.cuMemAllocFromPoolAsync_ptsz(dptr, bytesize, pool, hStream); });
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) noexcept {
  return free_async(dptr, hStream, false, [&] { return driver.cuMemFreeAsync(dptr, hStream); });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) noexcept {
  return free_async(dptr, hStream, true, [&] { return driver.cuMemFreeAsync_ptsz(dptr, hStream); });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuMemPoolCreate(pool, poolProps);
    if (result != CUDA_SUCCESS) return result;
    const bool is_shared = poolProps->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const bool is_pageable = poolProps->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                             poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                             (poolProps->handleTypes == CU_MEM_HANDLE_TYPE_NONE || is_shared);
    Process* const process = is_pageable ? Process::start() : nullptr;
    const CUdevice device = is_pageable ? poolProps->location.id : 0;
    if (process == nullptr || (is_shared && process->exports_are_real) ||
        process->devices.attach(device) != Devices::Attach::kAttached) {
      return result;
    }
    const auto attached = process->devices.find(device);
    if (attached && attached->has_vmm) {
      process->pools.add(*pool, device, poolProps->maxSize, is_shared ? new_tag() : 0);
    }
    return result;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) noexcept {
  return guarded([&] {
    Process* const process = process_of(pool);
    const CUresult result = driver.cuMemPoolDestroy(pool);
    if (result == CUDA_SUCCESS && process != nullptr) process->pools.destroy(pool);
    return result;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuMemPoolTrimTo(pool, minBytesToKeep);
    if (result != CUDA_SUCCESS) return result;
    if (Process* const process = process_of(pool)) {
      process->pools.trim(pool, minBytesToKeep);
      process->agent.notify();
    }
    return result;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) noexcept {
  return guarded([&] {
    Process* const process = value == nullptr ? nullptr : process_of(pool);
    if (process != nullptr) {
      if (const auto result = process->pools.set_attribute(pool, attr, value)) return *result;
    }
    return driver.cuMemPoolSetAttribute(pool, attr, value);
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) noexcept {
  return guarded([&] {
    Process* const process = value == nullptr ? nullptr : process_of(pool);
    if (process != nullptr) {
      if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) process->pools.trim_to_threshold(pool);
      if (const auto result = process->pools.get_attribute(pool, attr, value)) return *result;
    }
    return driver.cuMemPoolGetAttribute(pool, attr, value);
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuMemPoolSetAccess(pool, map, count);
    Process* const process = result == CUDA_SUCCESS ? process_of(pool) : nullptr;
    return process == nullptr ? result : process->pools.set_access(pool, map, count);
  });
}

}  // namespace plexrl::shim
