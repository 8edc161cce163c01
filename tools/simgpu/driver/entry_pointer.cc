// What an address is: pointer attributes and address ranges.

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/memory_pool.h"
#include "tools/simgpu/driver/vmm.h"

namespace plexrl::simgpu {
namespace {

std::mutex synchronous_mutex;
// ids of ranges whose SYNC_MEMOPS is set
auto& synchronous = *new std::set<std::uint64_t>;

int ordinal_of(int device) {
  const auto& visible = driver()->visible;
  return static_cast<int>(std::find(visible.begin(), visible.end(), device) - visible.begin());
}

template <typename T>
CUresult put(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

/// Booleans are written as an unsigned int: shim/query_handlers.cc names the programs that need it.
CUresult put_flag(void* data, bool value) { return put(data, value ? 1u : 0u); }

bool is_host(const Range& range) {
  return range.kind == Range::Kind::kHost || range.kind == Range::Kind::kHostRegistered;
}

/// The range of an address, and what VMM has mapped there.
struct Place {
  Range range;
  std::optional<VmmMapping> mapping;

  bool is_mapped() const { return range.kind != Range::Kind::kVmmReservation || mapping; }
  int device() const { return mapping ? mapping->device : range.device; }
};

std::optional<Place> find_place(std::uint64_t address) {
  const auto range = driver()->addresses.find(address);
  if (!range || range->kind == Range::Kind::kArray) return std::nullopt;
  Place place{*range, std::nullopt};
  if (range->kind == Range::Kind::kVmmReservation) place.mapping = find_mapping(address);
  return place;
}

CUresult access_flags(const Place& place, std::uint64_t address, void* data) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  if (place.range.kind == Range::Kind::kPool)
    return put(data, static_cast<MemoryPool*>(place.range.pool)->access(context->device));
  if (place.mapping)
    return put(data, place.mapping->access[static_cast<std::size_t>(context->device)]);
  std::uint64_t contiguous = 0;
  const bool reaches =
      driver()->addresses.translate(context->device, address, &contiguous) != nullptr;
  return put(data, reaches ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

/// Of a range, or of what is mapped in a reservation; never used again.
std::uint64_t number_of(const Place& place) {
  if (!place.mapping) return place.range.id;
  return 1ull << 62 | driver()->machine->tag_of(place.mapping->allocation);
}

CUresult attribute_of(const Place& place, std::uint64_t address, CUpointer_attribute attribute,
                      void* data) {
  const Range& range = place.range;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, range.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(data, is_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put<CUdeviceptr>(data, address);  // one address for all, host memory too
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!is_host(range) && range.kind != Range::Kind::kManaged) return CUDA_ERROR_INVALID_VALUE;
      return put(data, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: {
      const std::lock_guard lock(synchronous_mutex);
      return put_flag(data, synchronous.count(range.id) != 0);
    }
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<unsigned long long>(data, number_of(place));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put_flag(data, range.kind == Range::Kind::kManaged);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(data, ordinal_of(place.device()));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put_flag(data, range.kind == Range::Kind::kDevice);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(data, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<std::size_t>(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put_flag(data, place.is_mapped());
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(data, place.mapping ? place.mapping->handle_types : 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put_flag(data, false);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return access_flags(place, address, data);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, range.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put<std::size_t>(data, place.mapping ? place.mapping->bytes : range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put<CUdeviceptr>(data, place.mapping ? place.mapping->base : range.base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put<unsigned long long>(data, number_of(place));
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

/// What cuPointerGetAttributes writes for an address that CUDA doesn't know.
void put_nothing(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(data, -2);  // as documented: neither a device nor CU_DEVICE_CPU
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put_flag(data, false);
      break;
    default:
      put<std::uint64_t>(data, 0);
  }
}

bool is_attribute(CUpointer_attribute attribute) {
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
         attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                                     CUdeviceptr pointer) {
  SIMGPU_ENTER(cuPointerGetAttribute);
  if (data == nullptr || !is_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  const auto place = find_place(pointer);
  if (!place) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(*place, pointer, attribute, data);
}

SIMGPU_EXPORT CUresult CUDAAPI cuPointerGetAttributes(unsigned int count,
                                                      CUpointer_attribute* attributes, void** data,
                                                      CUdeviceptr pointer) {
  SIMGPU_ENTER(cuPointerGetAttributes);
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr || !is_attribute(attributes[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  // Unlike the single form, an attribute that an address does not have is zero, not an error.
  const auto place = find_place(pointer);
  for (unsigned i = 0; i < count; ++i) {
    if (!place || attribute_of(*place, pointer, attributes[i], data[i]) != CUDA_SUCCESS)
      put_nothing(attributes[i], data[i]);
  }
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuPointerSetAttribute(const void* value,
                                                     CUpointer_attribute attribute,
                                                     CUdeviceptr pointer) {
  SIMGPU_ENTER(cuPointerSetAttribute);
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  const auto place = find_place(pointer);
  if (!place || is_host(place->range)) return CUDA_ERROR_INVALID_VALUE;
  unsigned wanted = 0;
  std::memcpy(&wanted, value, sizeof wanted);
  const std::lock_guard lock(synchronous_mutex);
  if (wanted != 0) {
    synchronous.insert(place->range.id);
  } else {
    synchronous.erase(place->range.id);
  }
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes,
                                                       CUdeviceptr pointer) {
  SIMGPU_ENTER_CONTEXT(cuMemGetAddressRange_v2);
  const auto place = find_place(pointer);
  if (!place || !place->is_mapped()) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = place->mapping ? place->mapping->base : place->range.base;
  if (bytes != nullptr) *bytes = place->mapping ? place->mapping->bytes : place->range.bytes;
  return CUDA_SUCCESS;
}
