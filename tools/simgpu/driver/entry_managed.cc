// Managed memory, and what a program says of where it wants it ("Unified Memory", CUDA C++
// programming guide).

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tools/simgpu/driver/entry_pair.h"
#include "tools/simgpu/driver/managed.h"

namespace plexrl::simgpu {
namespace {

constexpr int kHostOrdinal = CU_DEVICE_CPU;
constexpr int kNoOrdinal = CU_DEVICE_INVALID;

bool is_ordinal(int ordinal) {
  return ordinal >= 0 && static_cast<std::size_t>(ordinal) < driver()->visible.size();
}

bool is_host_node(int node) {
  const std::string folder = "/sys/devices/system/node/node" + std::to_string(node);
  return node >= 0 && (node == 0 || access(folder.c_str(), F_OK) == 0);
}

/// Checks a location, and replaces "the nearest node" by that node.
CUresult check_location(CUmemLocation* location) {
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return is_ordinal(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
      location->id = 0;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return is_host_node(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: {
      unsigned cpu = 0;
      unsigned node = 0;
      if (getcpu(&cpu, &node) != 0) node = 0;
      location->type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
      location->id = static_cast<int>(node);
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

/// What the first versions of the calls mean by a device.
CUmemLocation location_of(CUdevice device) {
  CUmemLocation location{};
  location.type = device == kHostOrdinal ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CUresult advise(CUdeviceptr pointer, std::size_t bytes, CUmem_advise advice,
                CUmemLocation location) {
  if (!is_managed(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const bool names_place = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                           advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                           advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (names_place) {
    if (const CUresult result = check_location(&location); result != CUDA_SUCCESS) return result;
  }
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      change_advice(pointer, bytes, [&](PageAdvice& page) {
        page.is_read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
      });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      change_advice(pointer, bytes, [&](PageAdvice& page) { page.preferred = location; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      change_advice(pointer, bytes, [](PageAdvice& page) { page.preferred = {}; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY: {
      if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) return CUDA_ERROR_INVALID_VALUE;
      const bool is_set = advice == CU_MEM_ADVISE_SET_ACCESSED_BY;
      change_advice(pointer, bytes, [&](PageAdvice& page) {
        if (location.type == CU_MEM_LOCATION_TYPE_HOST) {
          page.is_accessed_by_host = is_set;
        } else if (is_set) {
          page.accessed_by |= 1u << location.id;
        } else {
          page.accessed_by &= ~(1u << location.id);
        }
      });
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

/// A place in the stream for what moves no bytes here.
CUresult keep_order(bool per_thread, CUstream handle) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  // "Prohibited and unhandled operations" of stream capture: calls that no graph node stands for.
  if (const CUresult refused = refuse_in_capture(stream); refused != CUDA_SUCCESS) return refused;
  return submit(handle, per_thread, std::make_unique<EmptyOperation>());
}

CUresult prefetch(bool per_thread, CUdeviceptr pointer, std::size_t bytes, CUmemLocation location,
                  unsigned flags, CUstream stream) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  if (flags != 0 || !is_managed(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_location(&location); result != CUDA_SUCCESS) return result;
  const CUresult result = keep_order(per_thread, stream);
  if (result != CUDA_SUCCESS) return result;
  change_advice(pointer, bytes, [&](PageAdvice& page) { page.prefetched = location; });
  return CUDA_SUCCESS;
}

CUresult prefetch_to_device(bool per_thread, CUdeviceptr pointer, std::size_t bytes,
                            CUdevice device, CUstream stream) {
  return prefetch(per_thread, pointer, bytes, location_of(device), 0, stream);
}

bool are_managed(const CUdeviceptr* pointers, const std::size_t* sizes, std::size_t count) {
  if (pointers == nullptr || sizes == nullptr || count == 0) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_managed(pointers[i], sizes[i])) return false;
  }
  return true;
}

bool is_legacy(bool per_thread, CUstream stream) {
  return stream == CU_STREAM_LEGACY || (stream == nullptr && !per_thread);
}

/// What is discarded has indeterminate contents until it is written: here those it had.
CUresult discard_batch(bool per_thread, CUdeviceptr* pointers, std::size_t* sizes,
                       std::size_t count, unsigned long long flags, CUstream stream) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  if (flags != 0 || is_legacy(per_thread, stream) || !are_managed(pointers, sizes, count))
    return CUDA_ERROR_INVALID_VALUE;
  return keep_order(per_thread, stream);
}

CUresult prefetch_batch(bool per_thread, CUdeviceptr* pointers, std::size_t* sizes,
                        std::size_t count, CUmemLocation* locations, std::size_t* starts,
                        std::size_t location_count, unsigned long long flags, CUstream stream) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  if (flags != 0 || is_legacy(per_thread, stream) || !are_managed(pointers, sizes, count) ||
      locations == nullptr || starts == nullptr || location_count == 0 || location_count > count) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<CUmemLocation> checked(locations, locations + location_count);
  for (std::size_t k = 0; k < location_count; ++k) {
    const bool is_in_order = k == 0 ? starts[0] == 0 : starts[k] > starts[k - 1];
    if (!is_in_order || starts[k] >= count) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_location(&checked[k]); result != CUDA_SUCCESS) return result;
  }
  const CUresult result = keep_order(per_thread, stream);
  if (result != CUDA_SUCCESS) return result;
  for (std::size_t i = 0, k = 0; i < count; ++i) {
    if (k + 1 < location_count && i == starts[k + 1]) ++k;
    change_advice(pointers[i], sizes[i], [&](PageAdvice& page) { page.prefetched = checked[k]; });
  }
  return CUDA_SUCCESS;
}

/// What the pages of a range have in common.
struct CommonAdvice {
  bool is_read_mostly = true;
  CUmemLocation preferred{}, prefetched{};
  std::uint32_t accessed_by = ~0u;
  bool is_accessed_by_host = true;
};

CommonAdvice common_advice(CUdeviceptr pointer, std::size_t bytes) {
  CommonAdvice common;
  bool is_first = true;
  const auto narrow = [&](CUmemLocation* all, const CUmemLocation& one) {
    if (is_first) *all = one;
    if (all->type != one.type || all->id != one.id) *all = {};
  };
  change_advice(pointer, bytes, [&](PageAdvice& page) {
    common.is_read_mostly &= page.is_read_mostly;
    common.accessed_by &= page.accessed_by;
    common.is_accessed_by_host &= page.is_accessed_by_host;
    narrow(&common.preferred, page.preferred);
    narrow(&common.prefetched, page.prefetched);
    is_first = false;
  });
  return common;
}

int ordinal_of(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_INVALID) return kNoOrdinal;
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : kHostOrdinal;
}

CUresult check_range_attribute(const void* data, std::size_t data_bytes,
                               CUmem_range_attribute attribute) {
  const bool is_attribute = attribute >= CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY &&
                            attribute <= CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID;
  const bool is_size = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY
                           ? data_bytes != 0 && data_bytes % 4 == 0
                           : data_bytes == 4;
  return data != nullptr && is_attribute && is_size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void put_range_attribute(const CommonAdvice& common, void* data, std::size_t data_bytes,
                         CUmem_range_attribute attribute) {
  std::vector<int> values(data_bytes / sizeof(int), kNoOrdinal);
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      values[0] = common.is_read_mostly ? 1 : 0;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      values[0] = ordinal_of(common.preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      values[0] = ordinal_of(common.prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      values[0] = common.preferred.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      values[0] = common.preferred.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      values[0] = common.prefetched.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      values[0] = common.prefetched.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      auto next = values.begin();
      for (int ordinal = 0; ordinal < kMaxDevices && next != values.end(); ++ordinal) {
        if ((common.accessed_by >> ordinal & 1) != 0) *next++ = ordinal;
      }
      if (common.is_accessed_by_host && next != values.end()) *next = kHostOrdinal;
      break;
    }
    default:
      break;
  }
  std::memcpy(data, values.data(), data_bytes);
}

/// The host and every device can reach managed memory at any time here, so that an association
/// with a stream changes nothing ("... that has a zero value for … CONCURRENT_MANAGED_ACCESS").
CUresult attach(bool per_thread, CUstream stream, CUdeviceptr pointer, std::size_t bytes,
                unsigned flags) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
      flags != CU_MEM_ATTACH_SINGLE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto range = driver()->addresses.find(pointer);
  if (!range || range->kind != Range::Kind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  if (bytes != 0 && bytes != range->bytes) return CUDA_ERROR_INVALID_VALUE;
  const bool is_default_stream =
      stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  if (flags == CU_MEM_ATTACH_SINGLE && is_default_stream) return CUDA_ERROR_INVALID_VALUE;
  return keep_order(per_thread, stream);
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes,
                                                 unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuMemAllocManaged);
  if (pointer == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  std::uint64_t address = 0;
  const CUresult result = allocate_managed(context, context->device, bytes, &address);
  if (result == CUDA_SUCCESS) *pointer = address;
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice,
                                           CUdevice device) {
  SIMGPU_ENTER_CONTEXT(cuMemAdvise);
  return advise(pointer, bytes, advice, location_of(device));
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes,
                                              CUmem_advise advice, CUmemLocation location) {
  SIMGPU_ENTER_CONTEXT(cuMemAdvise_v2);
  return advise(pointer, bytes, advice, location);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemRangeGetAttribute(void* data, size_t data_bytes,
                                                      CUmem_range_attribute attribute,
                                                      CUdeviceptr pointer, size_t bytes) {
  SIMGPU_ENTER_CONTEXT(cuMemRangeGetAttribute);
  const CUresult result = check_range_attribute(data, data_bytes, attribute);
  if (result != CUDA_SUCCESS) return result;
  if (!is_managed(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  put_range_attribute(common_advice(pointer, bytes), data, data_bytes, attribute);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemRangeGetAttributes(void** data, size_t* data_bytes,
                                                       CUmem_range_attribute* attributes,
                                                       size_t count, CUdeviceptr pointer,
                                                       size_t bytes) {
  SIMGPU_ENTER_CONTEXT(cuMemRangeGetAttributes);
  if (data == nullptr || data_bytes == nullptr || attributes == nullptr || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult result = check_range_attribute(data[i], data_bytes[i], attributes[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  if (!is_managed(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const CommonAdvice common = common_advice(pointer, bytes);
  for (std::size_t i = 0; i < count; ++i)
    put_range_attribute(common, data[i], data_bytes[i], attributes[i]);
  return CUDA_SUCCESS;
}

SIMGPU_PAIR(cuMemPrefetchAsync, _ptsz, prefetch_to_device,
            (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream), pointer, bytes,
            device, stream)
SIMGPU_PAIR(cuMemPrefetchAsync_v2, _ptsz, prefetch,
            (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned int flags,
             CUstream stream),
            pointer, bytes, location, flags, stream)
SIMGPU_PAIR(cuMemPrefetchBatchAsync, _ptsz, prefetch_batch,
            (CUdeviceptr * pointers, size_t* sizes, size_t count, CUmemLocation* locations,
             size_t* starts, size_t location_count, unsigned long long flags, CUstream stream),
            pointers, sizes, count, locations, starts, location_count, flags, stream)
SIMGPU_PAIR(cuMemDiscardBatchAsync, _ptsz, discard_batch,
            (CUdeviceptr * pointers, size_t* sizes, size_t count, unsigned long long flags,
             CUstream stream),
            pointers, sizes, count, flags, stream)
SIMGPU_PAIR(cuMemDiscardAndPrefetchBatchAsync, _ptsz, prefetch_batch,
            (CUdeviceptr * pointers, size_t* sizes, size_t count, CUmemLocation* locations,
             size_t* starts, size_t location_count, unsigned long long flags, CUstream stream),
            pointers, sizes, count, locations, starts, location_count, flags, stream)
SIMGPU_PAIR(cuStreamAttachMemAsync, _ptsz, attach,
            (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned int flags), stream,
            pointer, bytes, flags)
