// Virtual memory management: reservations, physical handles, mappings, access ("Virtual Memory
// Management", CUDA driver API).

#include <algorithm>
#include <cstring>
#include <map>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/vmm.h"

namespace plexrl::simgpu {
namespace {

/// A physical handle of this process. Each hold of the machine's allocation that the handle stands
/// for is one of its uses.
struct Handle {
  std::uint32_t allocation;
  int uses;  ///< cuMemCreate, Retain and Import minus Release
  CUmemAllocationProp properties;
};

struct Mapping {
  std::uint64_t bytes;
  std::uint32_t allocation;
  CUmemGenericAllocationHandle handle;
  std::array<int, kMaxDevices> access;  ///< CUmemAccess_flags by device
};

/// Guards the tables below. Costs are spent before it is taken.
std::mutex vmm_mutex;
auto& handles = *new std::map<CUmemGenericAllocationHandle, Handle>;
auto& mappings = *new std::map<std::uint64_t, Mapping>;            // by address
auto& reservations = *new std::map<std::uint64_t, std::uint64_t>;  // base -> bytes
CUmemGenericAllocationHandle next_handle = 0x1000;

// Shares of a 2 MiB create (193 us), as kvcached's bench_vmm measured them: map 1.5 us, access 36
// us, unmap 26 us.
constexpr double kMapShare = 1.5 / 193;
constexpr double kAccessShare = 36.0 / 193;
constexpr double kUnmapShare = 26.0 / 193;

void spend(double share) {
  Machine& machine = *driver()->machine;
  machine.spend_driver_time(
      static_cast<std::uint64_t>(share * static_cast<double>(machine.spec().vmm_ns)));
}

bool is_ordinal(int device) {
  return device >= 0 && static_cast<std::size_t>(device) < driver()->visible.size();
}
int device_of(int ordinal) { return driver()->visible[static_cast<std::size_t>(ordinal)]; }

CUresult check_properties(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!is_ordinal(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const unsigned possible = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if ((static_cast<unsigned>(properties->requestedHandleTypes) & ~possible) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

/// The mappings that exactly cover [base, base + bytes), or nothing when the range cuts one or has
/// holes.
std::vector<std::map<std::uint64_t, Mapping>::iterator> covering(std::uint64_t base,
                                                                 std::uint64_t bytes) {
  std::vector<std::map<std::uint64_t, Mapping>::iterator> result;
  std::uint64_t at = base;
  for (auto mapping = mappings.find(base);
       mapping != mappings.end() && mapping->first == at && at < base + bytes; ++mapping) {
    result.push_back(mapping);
    at += mapping->second.bytes;
  }
  if (at != base + bytes) result.clear();
  return result;
}

}  // namespace

CUmemGenericAllocationHandle add_handle(std::uint32_t allocation,
                                        const CUmemAllocationProp& properties) {
  const std::lock_guard lock(vmm_mutex);
  const CUmemGenericAllocationHandle handle = next_handle++;
  handles[handle] = {allocation, 1, properties};
  return handle;
}

std::optional<VmmHandle> find_handle(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(vmm_mutex);
  const auto found = handles.find(handle);
  if (found == handles.end()) return std::nullopt;
  return VmmHandle{found->second.allocation,
                   static_cast<unsigned>(found->second.properties.requestedHandleTypes)};
}

std::optional<VmmMapping> find_mapping(std::uint64_t address) {
  const std::lock_guard lock(vmm_mutex);
  auto mapping = mappings.upper_bound(address);
  if (mapping == mappings.begin()) return std::nullopt;
  --mapping;
  const auto& [base, mapped] = *mapping;
  if (address - base >= mapped.bytes) return std::nullopt;
  const auto handle = handles.find(mapped.handle);
  const unsigned types =
      handle == handles.end()
          ? 0u
          : static_cast<unsigned>(handle->second.properties.requestedHandleTypes);
  return VmmMapping{
      base,  mapped.bytes, driver()->machine->device_of(mapped.allocation), mapped.allocation,
      types, mapped.access};
}

}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity,
                                                             const CUmemAllocationProp* properties,
                                                             CUmemAllocationGranularity_flags) {
  SIMGPU_ENTER(cuMemGetAllocationGranularity);
  if (granularity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_properties(properties); result != CUDA_SUCCESS) return result;
  *granularity = kFrameBytes;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes,
                                                   size_t alignment, CUdeviceptr hint,
                                                   unsigned long long flags) {
  SIMGPU_ENTER(cuMemAddressReserve);
  const bool power_of_two = (alignment & (alignment - 1)) == 0;
  if (pointer == nullptr || bytes == 0 || bytes % kFrameBytes != 0 || !power_of_two || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t base = driver()->addresses.reserve(bytes, alignment, hint);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = Range::Kind::kVmmReservation;
  range.device = driver()->visible[0];
  range.id = driver()->addresses.next_id();
  driver()->addresses.add(range);
  const std::lock_guard lock(vmm_mutex);
  reservations[base] = bytes;
  *pointer = base;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  SIMGPU_ENTER(cuMemAddressFree);
  {
    const std::lock_guard lock(vmm_mutex);
    const auto found = reservations.find(pointer);
    if (found == reservations.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    const auto mapped = mappings.lower_bound(pointer);
    if (mapped != mappings.end() && mapped->first < pointer + bytes)
      return CUDA_ERROR_INVALID_VALUE;
    reservations.erase(found);
  }
  driver()->addresses.remove(pointer, nullptr);
  driver()->addresses.unreserve(pointer, bytes);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                           const CUmemAllocationProp* properties,
                                           unsigned long long flags) {
  SIMGPU_ENTER(cuMemCreate);
  if (handle == nullptr || bytes == 0 || bytes % kFrameBytes != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_properties(properties); result != CUDA_SUCCESS) return result;
  spend(1);
  std::uint32_t allocation = 0;
  if (!driver()->machine->allocate(device_of(properties->location.id), bytes, &allocation))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = add_handle(allocation, *properties);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIMGPU_ENTER(cuMemRelease);
  std::uint32_t allocation = 0;
  {
    const std::lock_guard lock(vmm_mutex);
    const auto found = handles.find(handle);
    if (found == handles.end() || found->second.uses == 0) return CUDA_ERROR_INVALID_VALUE;
    allocation = found->second.allocation;
    if (--found->second.uses == 0) {
      // A mapping keeps the handle's number alive for cuMemRetainAllocationHandle.
      const bool mapped = std::any_of(mappings.begin(), mappings.end(),
                                      [&](const auto& m) { return m.second.handle == handle; });
      if (!mapped) handles.erase(found);
    }
  }
  driver()->machine->release(allocation);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                                        CUmemGenericAllocationHandle handle,
                                        unsigned long long flags) {
  SIMGPU_ENTER(cuMemMap);
  if (flags != 0 || offset != 0 || bytes == 0 || bytes % kFrameBytes != 0 ||
      pointer % kFrameBytes != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  spend(kMapShare);
  const auto object = find_handle(handle);
  const auto multicast = object ? driver()->machine->multicast(object->allocation) : std::nullopt;
  if (multicast && !wait_for_team(object->allocation)) return CUDA_ERROR_DEINITIALIZED;
  const std::lock_guard lock(vmm_mutex);
  const auto found = handles.find(handle);
  if (found == handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t whole =
      multicast ? multicast->bytes : driver()->machine->bytes_of(found->second.allocation);
  if (whole != bytes) return CUDA_ERROR_INVALID_VALUE;
  auto reservation = reservations.upper_bound(pointer);
  if (reservation == reservations.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reservation;
  if (pointer + bytes > reservation->first + reservation->second) return CUDA_ERROR_INVALID_VALUE;
  const auto after = mappings.lower_bound(pointer);
  if (after != mappings.end() && after->first < pointer + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (after != mappings.begin() &&
      std::prev(after)->first + std::prev(after)->second.bytes > pointer) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  driver()->machine->hold(found->second.allocation);
  mappings[pointer] = {bytes, found->second.allocation, handle, {}};
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemSetAccess(CUdeviceptr pointer, size_t bytes,
                                              const CUmemAccessDesc* descriptions, size_t count) {
  SIMGPU_ENTER(cuMemSetAccess);
  if (descriptions == nullptr || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  spend(kAccessShare);
  const std::lock_guard lock(vmm_mutex);
  const auto covered = covering(pointer, bytes);
  if (covered.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (descriptions[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
      return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_ordinal(descriptions[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
  }
  Machine& machine = *driver()->machine;
  const auto is_multicast = [&](const Mapping& mapping) {
    return machine.multicast(mapping.allocation).has_value();
  };
  for (const auto& mapping : covered) {
    for (std::size_t i = 0; i < count && is_multicast(mapping->second); ++i) {
      if (!machine.is_in_team(mapping->second.allocation, device_of(descriptions[i].location.id)))
        return CUDA_ERROR_INVALID_DEVICE;
    }
  }
  for (const auto& mapping : covered) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto device = device_of(descriptions[i].location.id);
      mapping->second.access[static_cast<std::size_t>(device)] = descriptions[i].flags;
      // What is behind a multicast address only multimem instructions reach (find_replicas).
      if (is_multicast(mapping->second)) continue;
      if (descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        driver()->addresses.unmap(device, mapping->first, mapping->second.bytes);
      } else {
        driver()->addresses.map(device, mapping->first, machine.frames(mapping->second.allocation));
      }
    }
  }
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags,
                                              const CUmemLocation* location, CUdeviceptr pointer) {
  SIMGPU_ENTER(cuMemGetAccess);
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
      !is_ordinal(location->id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::lock_guard lock(vmm_mutex);
  auto mapping = mappings.upper_bound(pointer);
  if (mapping == mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  --mapping;
  if (pointer >= mapping->first + mapping->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  *flags = static_cast<unsigned long long>(
      mapping->second.access[static_cast<std::size_t>(device_of(location->id))]);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  SIMGPU_ENTER(cuMemUnmap);
  spend(kUnmapShare);
  const std::lock_guard lock(vmm_mutex);
  const auto covered = covering(pointer, bytes);
  if (covered.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& mapping : covered) {
    for (const int device : driver()->visible)
      driver()->addresses.unmap(device, mapping->first, mapping->second.bytes);
    driver()->machine->release(mapping->second.allocation);
    const CUmemGenericAllocationHandle handle = mapping->second.handle;
    mappings.erase(mapping);
    const auto found = handles.find(handle);
    const bool mapped = std::any_of(mappings.begin(), mappings.end(),
                                    [&](const auto& m) { return m.second.handle == handle; });
    if (found != handles.end() && found->second.uses == 0 && !mapped) handles.erase(found);
  }
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                           void* address) {
  SIMGPU_ENTER(cuMemRetainAllocationHandle);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto pointer = reinterpret_cast<std::uint64_t>(address);
  const std::lock_guard lock(vmm_mutex);
  auto mapping = mappings.upper_bound(pointer);
  if (mapping == mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  --mapping;
  if (pointer >= mapping->first + mapping->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  ++handles[mapping->second.handle].uses;
  driver()->machine->hold(mapping->second.allocation);
  *handle = mapping->second.handle;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  SIMGPU_ENTER(cuMemGetAllocationPropertiesFromHandle);
  const std::lock_guard lock(vmm_mutex);
  const auto found = handles.find(handle);
  if (properties == nullptr || found == handles.end() ||
      driver()->machine->multicast(found->second.allocation)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *properties = found->second.properties;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable,
                                                            CUmemGenericAllocationHandle handle,
                                                            CUmemAllocationHandleType type,
                                                            unsigned long long flags) {
  SIMGPU_ENTER(cuMemExportToShareableHandle);
  if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  std::uint32_t allocation = 0;
  {
    const std::lock_guard lock(vmm_mutex);
    const auto found = handles.find(handle);
    if (found == handles.end()) return CUDA_ERROR_INVALID_VALUE;
    if ((found->second.properties.requestedHandleTypes &
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    allocation = found->second.allocation;
  }
  const int descriptor = driver()->machine->export_descriptor(allocation);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(shareable, &descriptor, sizeof descriptor);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                              void* shareable,
                                                              CUmemAllocationHandleType type) {
  SIMGPU_ENTER(cuMemImportFromShareableHandle);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  std::uint32_t allocation = 0;
  if (!driver()->machine->import_descriptor(
          static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)), &allocation)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto& visible = driver()->visible;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = static_cast<int>(
      std::find(visible.begin(), visible.end(), driver()->machine->device_of(allocation)) -
      visible.begin());
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  *handle = add_handle(allocation, properties);
  return CUDA_SUCCESS;
}
