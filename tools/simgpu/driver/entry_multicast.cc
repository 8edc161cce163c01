// Multicast objects ("Multicast Object Management", CUDA driver API). What multimem instructions do
// with them: ptx/atomic.h.

#include <algorithm>

#include "tools/simgpu/driver/clock.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/vmm.h"
#include "tools/simgpu/ptx/executor.h"

namespace plexrl::simgpu {
namespace {

static_assert(kMaxDevices <= static_cast<int>(ptx::AddressSpace::kMaxReplicas));
constexpr std::uint64_t kGranularity = kFrameBytes;
constexpr std::uint64_t kLookNs = 1'000'000;  // how often a call looks whether the team is there

bool is_supported() { return driver()->machine->spec().sm >= 90; }

bool is_size(std::uint64_t bytes) { return bytes != 0 && bytes % kGranularity == 0; }

CUresult check_properties(const CUmulticastObjectProp* properties) {
  if (properties == nullptr || !is_size(properties->size) || properties->flags != 0 ||
      properties->numDevices == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->numDevices > driver()->visible.size()) return CUDA_ERROR_INVALID_DEVICE;
  const unsigned long long possible = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return (properties->handleTypes & ~possible) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

bool find_device(CUdevice ordinal, int* device) {
  const auto& visible = driver()->visible;
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= visible.size()) return false;
  *device = visible[static_cast<std::size_t>(ordinal)];
  return true;
}

/// The machine's id of a multicast object.
CUresult find_object(CUmemGenericAllocationHandle handle, std::uint32_t* id) {
  if (!is_supported()) return CUDA_ERROR_NOT_SUPPORTED;
  const auto found = find_handle(handle);
  if (!found || !driver()->machine->multicast(found->allocation)) return CUDA_ERROR_INVALID_VALUE;
  *id = found->allocation;
  return CUDA_SUCCESS;
}

/// `bytes` of an allocation from `memory_offset` on, at `offset` of the object. `handle_types`:
/// what the memory may be exported as.
CUresult bind(CUmemGenericAllocationHandle handle, std::uint64_t offset, const VmmHandle& memory,
              std::uint64_t memory_offset, std::uint64_t bytes, unsigned long long flags) {
  std::uint32_t id = 0;
  if (const CUresult result = find_object(handle, &id); result != CUDA_SUCCESS) return result;
  Machine& machine = *driver()->machine;
  const auto object = machine.multicast(id);
  if (flags != 0 || !is_size(bytes) || offset % kGranularity != 0 ||
      memory_offset % kGranularity != 0 || machine.multicast(memory.allocation)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes > object->bytes || offset > object->bytes - bytes) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t available = machine.bytes_of(memory.allocation);
  if (bytes > available || memory_offset > available - bytes) return CUDA_ERROR_INVALID_VALUE;
  // "Externally shareable as well as imported multicast objects can be bound only to externally
  // shareable memory."
  if ((object->handle_types & ~memory.handle_types) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!wait_for_team(id)) return CUDA_ERROR_DEINITIALIZED;
  if (!machine.is_in_team(id, machine.device_of(memory.allocation)))
    return CUDA_ERROR_INVALID_DEVICE;
  switch (machine.bind_multicast(id, offset, memory.allocation, memory_offset, bytes)) {
    case Machine::Bound::kDone:
      return CUDA_SUCCESS;
    case Machine::Bound::kTaken:
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

}  // namespace

bool wait_for_team(std::uint32_t multicast) {
  while (is_ready() && !driver()->machine->is_complete(multicast))
    sleep_for_device(now_ns() + kLookNs);
  return is_ready();
}

std::size_t find_replicas(int device, std::uint64_t address, std::size_t, std::byte** out) {
  const auto mapping = find_mapping(address);
  if (!mapping || !driver()->machine->multicast(mapping->allocation)) return 0;
  if (mapping->access[static_cast<std::size_t>(device)] == CU_MEM_ACCESS_FLAGS_PROT_NONE) return 0;
  return driver()->machine->multicast_replicas(mapping->allocation, address - mapping->base, out);
}

}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuMulticastGetGranularity(size_t* granularity,
                                                         const CUmulticastObjectProp* properties,
                                                         CUmulticastGranularity_flags) {
  SIMGPU_ENTER(cuMulticastGetGranularity);
  if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_supported()) return CUDA_ERROR_NOT_SUPPORTED;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMulticastCreate(CUmemGenericAllocationHandle* handle,
                                                 const CUmulticastObjectProp* properties) {
  SIMGPU_ENTER(cuMulticastCreate);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_supported()) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult result = check_properties(properties); result != CUDA_SUCCESS) return result;
  const auto types = static_cast<unsigned>(properties->handleTypes);
  std::uint32_t id = 0;
  if (!driver()->machine->create_multicast({properties->size, properties->numDevices, types}, &id))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUmemAllocationProp as_memory{};
  as_memory.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
  *handle = add_handle(id, as_memory);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMulticastAddDevice(CUmemGenericAllocationHandle handle,
                                                    CUdevice ordinal) {
  SIMGPU_ENTER(cuMulticastAddDevice);
  std::uint32_t id = 0;
  int device = 0;
  if (const CUresult result = find_object(handle, &id); result != CUDA_SUCCESS) return result;
  if (!find_device(ordinal, &device)) return CUDA_ERROR_INVALID_DEVICE;
  return driver()->machine->add_to_multicast(id, device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMulticastBindMem(CUmemGenericAllocationHandle handle,
                                                  size_t offset,
                                                  CUmemGenericAllocationHandle memory,
                                                  size_t memory_offset, size_t bytes,
                                                  unsigned long long flags) {
  SIMGPU_ENTER(cuMulticastBindMem);
  const auto found = find_handle(memory);
  if (!found) return is_supported() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  return bind(handle, offset, *found, memory_offset, bytes, flags);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMulticastBindAddr(CUmemGenericAllocationHandle handle,
                                                   size_t offset, CUdeviceptr address, size_t bytes,
                                                   unsigned long long flags) {
  SIMGPU_ENTER(cuMulticastBindAddr);
  const auto found = find_mapping(address);
  if (!found) return is_supported() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  return bind(handle, offset, {found->allocation, found->handle_types}, address - found->base,
              bytes, flags);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMulticastUnbind(CUmemGenericAllocationHandle handle,
                                                 CUdevice ordinal, size_t offset, size_t bytes) {
  SIMGPU_ENTER(cuMulticastUnbind);
  std::uint32_t id = 0;
  int device = 0;
  if (const CUresult result = find_object(handle, &id); result != CUDA_SUCCESS) return result;
  if (!find_device(ordinal, &device)) return CUDA_ERROR_INVALID_DEVICE;
  return driver()->machine->unbind_multicast(id, device, offset, bytes) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}
