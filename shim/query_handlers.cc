#include <algorithm>

#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/guarded.h"
#include "shim/job_view.h"
#include "shim/process.h"

/// Answers about memory that must agree with what the job was promised and with whole allocations,
/// whatever is resident at the moment. None of them waits for a lease.

namespace plexrl::shim {
namespace {

/// CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, which headers before CUDA 12.8 lack.
constexpr auto kIsHwDecompressCapable = static_cast<CUpointer_attribute>(21);

template <typename T>
CUresult put(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

bool has_gpu_direct(CUdevice device) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
                                     device) == CUDA_SUCCESS &&
         value != 0;
}

/// A boolean is four bytes wide. NCCL reads IS_LEGACY_CUDA_IPC_CAPABLE from an int that it has not
/// set before (ncclRegister), the sample uvmlite of the toolkit's libNVVM IS_MANAGED from an
/// unsigned int, likewise; CCCL passes an int for IS_MANAGED and MAPPED (libcudacxx, driver_api.h)
/// and cuda-python an int or unsigned int for those that it knows; and of SYNC_MEMOPS the reference
/// of cuPointerSetAttribute says that it is an unsigned integer. No source was found for
/// IS_HW_DECOMPRESS_CAPABLE, which follows the others.
CUresult put_flag(void* data, bool value) { return put<unsigned int>(data, value ? 1 : 0); }

/// What the driver answers for memory of cuMemAlloc (reference of cuPointerGetAttribute).
CUresult attribute_of(const DeviceMemory::Allocation& allocation, CUdeviceptr ptr,
                      CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put<CUcontext>(data, allocation.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned int>(data, CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put<CUdeviceptr>(data, ptr);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      // The driver numbers its own from 1 up; ours have the top bit.
      return put<unsigned long long>(data, allocation.identifier | 1ull << 63);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put<unsigned long long>(data, allocation.identifier | 1ull << 63);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(data, allocation.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put<CUdeviceptr>(data, allocation.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put<std::size_t>(data, allocation.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put_flag(data, true);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put_flag(data, allocation.is_ipc_capable);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put_flag(data, allocation.pool == nullptr && has_gpu_direct(allocation.device));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case kIsHwDecompressCapable:
      return put_flag(data, false);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<unsigned int>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put<CUmemoryPool>(data, allocation.pool);
    default:
      return CUDA_ERROR_INVALID_VALUE;  // HOST_POINTER, P2P_TOKENS and what doesn't apply
  }
}

/// What the driver answers for memory that the job has mapped itself, whether or not it is in HBM.
CUresult attribute_of(const Vmm::Mapped& mapped, CUdeviceptr ptr, CUpointer_attribute attribute,
                      void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(data, mapped.reservation_start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<std::size_t>(data, mapped.reservation_bytes);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(
          data, static_cast<unsigned long long>(mapped.properties.requestedHandleTypes));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put_flag(data, mapped.properties.allocFlags.gpuDirectRDMACapable != 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
      const auto current = current_context();
      if (!current) return CUDA_ERROR_INVALID_CONTEXT;
      unsigned int flags = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
      for (const CUmemAccessDesc& access : mapped.access) {
        if (access.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            access.location.id == current->device) {
          flags = static_cast<unsigned int>(access.flags);
        }
      }
      return put<unsigned int>(data, flags);
    }
    default:
      return attribute_of(DeviceMemory::Allocation{mapped.start, mapped.bytes, mapped.device,
                                                   nullptr, mapped.identifier},
                          ptr, attribute, data);
  }
}

/// Memory of ours at an address, of either sort.
struct Ours {
  std::optional<DeviceMemory::Allocation> allocation;
  std::optional<Vmm::Mapped> mapped;

  explicit Ours(CUdeviceptr address) {
    Process* const process = Process::started();
    if (process == nullptr) return;
    allocation = process->find(address);
    if (!allocation) mapped = process->vmm.find(address);
  }
  explicit operator bool() const { return allocation || mapped; }
  CUresult attribute(CUdeviceptr ptr, CUpointer_attribute which, void* data) const {
    // The driver knows it, of memory that stays where it is since it was set.
    if (which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
      const auto memory = Process::started()->backing(ptr);
      if (memory && ranges().is_pinned(memory->address)) {
        return driver.cuPointerGetAttribute(data, which, ptr);
      }
    }
    return allocation ? attribute_of(*allocation, ptr, which, data)
                      : attribute_of(*mapped, ptr, which, data);
  }
};

std::size_t bytes_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case kIsHwDecompressCapable:
      return 4;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    default:
      return 8;
  }
}

template <typename Bytes>
Bytes clamp_to(std::uint64_t bytes) {
  return static_cast<Bytes>(std::min<std::uint64_t>(bytes, ~Bytes{0}));
}

/// Figures of the current device; none when the driver's own are to be used.
std::optional<Devices::Figures> current_figures() {
  CUcontext context = nullptr;
  CUdevice device = 0;
  Process* const process = Process::start_with_current(&context, &device);
  if (process == nullptr) return std::nullopt;
  // What pools hold only for later does not count as used once the job's work is over.
  process->pools.make_room(device);
  return process->devices.figures(device);
}

template <typename Bytes>
CUresult answer_memory(Bytes* free, Bytes* total) {
  const auto figures = current_figures();
  if (!figures) return CUDA_ERROR_NOT_FOUND;
  const std::uint64_t left =
      figures->promised_bytes - std::min(figures->promised_bytes, figures->used_bytes);
  if (free != nullptr) *free = clamp_to<Bytes>(left);
  if (total != nullptr) *total = clamp_to<Bytes>(figures->promised_bytes);
  return CUDA_SUCCESS;
}

std::uint64_t job_total(CUdevice device, std::uint64_t real) {
  Process* const process = Process::started();
  const auto attached = process == nullptr ? std::nullopt : process->devices.find(device);
  if (attached) return std::min(real, attached->promised_bytes);
  return std::min(real, promise_from_environment());
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) noexcept {
  return guarded([&] {
    std::size_t real_free = 0;
    std::size_t real_total = 0;
    // Errors (no context, a failed one) are the driver's; so are figures of an unshared process.
    const CUresult result = driver.cuMemGetInfo_v2(&real_free, &real_total);
    if (result != CUDA_SUCCESS) return result;
    if (answer_memory(free, total) == CUDA_SUCCESS) return CUDA_SUCCESS;
    return driver.cuMemGetInfo_v2(free, total);
  });
}

CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuMemGetInfo(free, total);
    if (result == CUDA_SUCCESS) answer_memory(free, total);
    return result;
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuDeviceTotalMem_v2(bytes, dev);
    if (result == CUDA_SUCCESS) *bytes = job_total(dev, *bytes);
    return result;
  });
}

CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuDeviceTotalMem(bytes, dev);
    if (result == CUDA_SUCCESS) *bytes = clamp_to<unsigned int>(job_total(dev, *bytes));
    return result;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) noexcept {
  return guarded([&] {
    const Ours ours(dptr);
    if (!ours) return driver.cuMemGetAddressRange_v2(pbase, psize, as_the_job_knows(dptr));
    if (pbase != nullptr) *pbase = ours.mapped ? ours.mapped->start : ours.allocation->start;
    if (psize != nullptr) *psize = ours.mapped ? ours.mapped->bytes : ours.allocation->bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1* pbase, unsigned int* psize,
                              CUdeviceptr_v1 dptr) noexcept {
  return driver.cuMemGetAddressRange(pbase, psize, dptr);
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                               CUdeviceptr ptr) noexcept {
  return guarded([&] {
    const Ours ours(ptr);
    if (!ours) return driver.cuPointerGetAttribute(data, attribute, as_the_job_knows(ptr));
    if (data == nullptr) return driver.cuPointerGetAttribute(data, attribute, ptr);
    return ours.attribute(ptr, attribute, data);
  });
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) noexcept {
  return guarded([&] {
    const Ours ours(ptr);
    const bool is_complete = numAttributes != 0 && attributes != nullptr && data != nullptr &&
                             std::find(data, data + numAttributes, nullptr) == data + numAttributes;
    if (!ours) {
      return driver.cuPointerGetAttributes(numAttributes, attributes, data, as_the_job_knows(ptr));
    }
    if (!is_complete) {
      return driver.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
    }
    for (unsigned int i = 0; i < numAttributes; ++i) {
      // An attribute that doesn't apply is set to its null value, and the call succeeds.
      if (ours.attribute(ptr, attributes[i], data[i]) != CUDA_SUCCESS) {
        std::fill_n(static_cast<unsigned char*>(data[i]), bytes_of(attributes[i]), 0);
      }
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace plexrl::shim
