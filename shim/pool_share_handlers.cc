#include <cstring>

#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/capability.h"
#include "shim/guarded.h"
#include "shim/log.h"
#include "shim/process.h"

/// Pools between processes of the job (CUDA driver API reference, "Stream Ordered Memory
/// Allocator"): a descriptor of a pool is a PoolName, what is exported of an allocation is a
/// Capability for the segment that it lies in. What the driver has made passes through.

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "pools";

Process* process_of(CUmemoryPool pool) {
  Process* const process = Process::started();
  return process != nullptr && process->pools.is_ours(pool) ? process : nullptr;
}

CUresult export_pool(Process& process, CUmemoryPool pool, int* out) {
  const auto shared = process.pools.shared(pool);
  if (!shared) return CUDA_ERROR_INVALID_VALUE;
  CUuuid uuid{};
  const CUresult result = driver.cuDeviceGetUuid_v2(&uuid, shared->device);
  if (result != CUDA_SUCCESS) return result;
  PoolName name;
  name.job = process.client.job();
  name.tag = shared->tag;
  std::memcpy(name.gpu.bytes, uuid.bytes, sizeof name.gpu.bytes);
  ScopedFd fd = to_descriptor(name);
  if (!fd.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  *out = fd.release();
  return CUDA_SUCCESS;
}

/// The driver's handle of the new pool is of one that stays empty, as those of other pools of ours.
CUresult import_pool(Process& process, const PoolName& name, CUmemoryPool* out) {
  if (name.job != process.client.job() || name.tag == 0) {
    PLEXRL_WARN(kFile,
                "a memory pool of another job can't be imported (which its plexrl-run can export "
                "to all, with --export=real)");
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto device = process.sharing.device_with(name.gpu);
  if (!device || process.devices.attach(*device) != Devices::Attach::kAttached) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {*device}};
  const CUresult result = driver.cuMemPoolCreate(out, &properties);
  if (result == CUDA_SUCCESS) process.pools.add_import(*out, *device, name.tag);
  return result;
}

CUresult export_pointer(Process& process, CUdeviceptr address, CUmemPoolPtrExportData* out) {
  const auto found = process.pools.export_of(address);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  auto capability = process.sharing.offer(found->range);
  if (!capability) return CUDA_ERROR_OPERATING_SYSTEM;
  capability->offset = address - found->range;
  capability->bytes = found->allocation.bytes;
  capability->pool = found->tag;
  *out = to_export_data(*capability);
  return CUDA_SUCCESS;
}

CUresult import_pointer(Process& process, CUmemoryPool pool, const CUmemPoolPtrExportData& data,
                        CUdeviceptr* out) {
  const auto tag = process.pools.import_tag(pool);
  const auto capability = from_export_data(data);
  // Memory of this process is here already, under its own address.
  if (!tag || !capability || capability->pool != *tag ||
      process.sharing.own_range(capability->id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Sharing::Imported imported{};
  CUresult result = process.sharing.import(*capability, CU_DEVICE_INVALID, &imported);
  if (result != CUDA_SUCCESS) return result;
  result = process.pools.import(pool, imported.range, imported.bytes, capability->offset,
                                capability->bytes);
  if (result == CUDA_SUCCESS) *out = imported.range + capability->offset;
  process.agent.notify();
  return result;
}

/// A pool of another process gives out nothing: it can't be a device's current one.
bool is_import(CUmemoryPool pool) {
  Process* const process = process_of(pool);
  return process != nullptr && process->pools.import_tag(pool);
}

}  // namespace

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) noexcept {
  return guarded([&] {
    Process* const process = process_of(pool);
    if (process == nullptr) {
      return driver.cuMemPoolExportToShareableHandle(handle_out, pool, handleType, flags);
    }
    if (handle_out == nullptr || flags != 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return export_pool(*process, pool, static_cast<int*>(handle_out));
  });
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) noexcept {
  return guarded([&] {
    const auto name =
        handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            ? pool_from_descriptor(static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)))
            : std::nullopt;
    Process* const process = name ? Process::start() : nullptr;
    if (process == nullptr) {
      return driver.cuMemPoolImportFromShareableHandle(pool_out, handle, handleType, flags);
    }
    if (pool_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return import_pool(*process, *name, pool_out);
  });
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    if (process == nullptr || !process->pools.find(ptr)) {
      return driver.cuMemPoolExportPointer(shareData_out, ptr);
    }
    if (shareData_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return export_pointer(*process, ptr, shareData_out);
  });
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData* shareData) noexcept {
  return guarded([&] {
    Process* const process = process_of(pool);
    if (process == nullptr) return driver.cuMemPoolImportPointer(ptr_out, pool, shareData);
    if (ptr_out == nullptr || shareData == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return import_pointer(*process, pool, *shareData, ptr_out);
  });
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) noexcept {
  return guarded([&] {
    return is_import(pool) ? CUDA_ERROR_INVALID_VALUE : driver.cuDeviceSetMemPool(dev, pool);
  });
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                         CUmemoryPool pool) noexcept {
  return guarded([&] {
    return is_import(pool) ? CUDA_ERROR_INVALID_VALUE
                           : driver.cuMemSetMemPool(location, type, pool);
  });
}

}  // namespace plexrl::shim
