#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/counted.h"
#include "shim/guarded.h"
#include "shim/job_view.h"
#include "shim/process.h"

/// The job's own virtual memory management. Device memory of the ordinary kind becomes ours; host
/// memory and memory with properties that can't be given back stay the driver's, counted.

namespace plexrl::shim {
namespace {

bool is_pageable(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->win32HandleMetaData != nullptr) {
    return false;
  }
  const auto types = static_cast<unsigned int>(properties->requestedHandleTypes);
  if ((types & ~static_cast<unsigned int>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) != 0) {
    return false;  // other machines of a fabric may have it
  }
  // Compressed memory and tile pools mean more than their bytes.
  return properties->allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_NONE &&
         properties->allocFlags.usage == 0;
}

/// The shared process, if memory of these properties is to be ours.
Process* process_for(const CUmemAllocationProp* properties) {
  if (!is_pageable(properties)) return nullptr;
  Process* const process = Process::start();
  const CUdevice device = properties->location.id;
  if (process == nullptr || process->devices.attach(device) != Devices::Attach::kAttached) {
    return nullptr;
  }
  const auto attached = process->devices.find(device);
  return attached && attached->has_vmm ? process : nullptr;
}

bool has_good_size(std::size_t bytes, const CUmemAllocationProp* properties) {
  std::size_t unit = 0;
  return bytes != 0 &&
         driver.cuMemGetAllocationGranularity(&unit, properties,
                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
         unit != 0 && bytes % unit == 0;
}

}  // namespace

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuMemAddressReserve(ptr, size, alignment, addr, flags);
    Process* const process = result == CUDA_SUCCESS ? Process::start() : nullptr;
    if (process != nullptr) process->vmm.reserved(*ptr, size);
    return result;
  });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    if (process == nullptr) return driver.cuMemAddressFree(ptr, size);
    // What is not in HBM now the driver knows nothing of.
    if (process->vmm.has_mappings(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = driver.cuMemAddressFree(ptr, size);
    if (result == CUDA_SUCCESS) process->vmm.unreserved(ptr);
    return result;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) noexcept {
  return guarded([&] {
    Process* const process = handle == nullptr || flags != 0 ? nullptr : process_for(prop);
    const auto call = [&] { return driver.cuMemCreate(handle, size, prop, flags); };
    if (process == nullptr) {
      const bool is_device = prop != nullptr && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
      if (!is_device) return call();
      return count_call(
          {interpose::Api::cuMemCreate, interpose::UnpageableKind::kVmm, size, nullptr}, call,
          [&] { return *handle; });
    }
    if (!has_good_size(size, prop)) return call();  // the driver has an error for it
    const CUresult result = process->vmm.create(prop->location.id, size, *prop, handle);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      process->devices.explain_refusal(prop->location.id, size);
    }
    process->agent.notify();
    return result;
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) noexcept {
  return guarded([&] {
    if (Process* const process = Process::started()) {
      if (const auto result = process->vmm.release(handle)) {
        process->agent.notify();
        return *result;
      }
    }
    const std::uint64_t bytes =
        count_remove(interpose::Api::cuMemRelease, interpose::UnpageableKind::kVmm, handle);
    const CUresult result = driver.cuMemRelease(handle);
    if (result != CUDA_SUCCESS) {
      count_restore(interpose::Api::cuMemRelease, interpose::UnpageableKind::kVmm, handle, bytes);
    }
    return result;
  });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) noexcept {
  return guarded([&] {
    if (Process* const process = Process::started()) {
      if (const auto result = process->vmm.map(ptr, size, offset, handle, flags)) return *result;
      if (process->vmm.has_mappings(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
    }
    return driver.cuMemMap(ptr, size, offset, handle, flags);
  });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) noexcept {
  return guarded([&] {
    if (Process* const process = Process::started()) {
      if (const auto result = process->vmm.unmap(ptr, size)) {
        process->agent.notify();
        return *result;
      }
    }
    return driver.cuMemUnmap(ptr, size);
  });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                        size_t count) noexcept {
  return guarded([&] {
    if (Process* const process = Process::started()) {
      if (const auto result = process->vmm.set_access(ptr, size, desc, count)) return *result;
    }
    return driver.cuMemSetAccess(ptr, size, desc, count);
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr ptr) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    if (process != nullptr && flags != nullptr && location != nullptr) {
      if (const auto access = process->vmm.access(ptr, *location)) {
        *flags = *access;
        return CUDA_SUCCESS;
      }
    }
    return driver.cuMemGetAccess(flags, location, ptr);
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) noexcept {
  return guarded([&] {
    const auto address = reinterpret_cast<std::uint64_t>(addr);
    Process* const process = Process::started();
    if (process != nullptr && handle != nullptr) {
      if (const auto result = process->vmm.retain(address, handle)) return *result;
      // Memory of cuMemAlloc and of pools has no handle that a program could get.
      if (process->find(address)) return CUDA_ERROR_INVALID_VALUE;
    }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the device
    void* const known = reinterpret_cast<void*>(as_the_job_knows(address));
    return driver.cuMemRetainAllocationHandle(handle, known);
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    if (process != nullptr && prop != nullptr) {
      if (const auto properties = process->vmm.properties(handle)) {
        *prop = *properties;
        return CUDA_SUCCESS;
      }
    }
    return driver.cuMemGetAllocationPropertiesFromHandle(prop, handle);
  });
}

}  // namespace plexrl::shim
