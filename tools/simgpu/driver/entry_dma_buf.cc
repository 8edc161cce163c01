// Device memory for other drivers: "Memory Management", cuMemGetHandleForAddressRange. No other
// driver is simulated that could import the descriptor: it is a sealed file that says whose memory
// it stands for.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/vmm.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint64_t kPage = 4096;

/// The device whose memory `address` means, and how many bytes of the same kind follow there; -1
/// where that can't be handed out.
int exportable(std::uint64_t address, std::uint64_t* contiguous) {
  if (const auto mapping = find_mapping(address)) {
    *contiguous = mapping->base + mapping->bytes - address;
    return mapping->device;
  }
  const auto range = driver()->addresses.find(address);
  if (!range || range->kind != Range::Kind::kDevice) return -1;
  *contiguous = (range->base + range->bytes + kPage - 1) / kPage * kPage - address;
  return range->device;
}

bool is_all_of_one_device(std::uint64_t address, std::uint64_t bytes, int* device) {
  std::uint64_t contiguous = 0;
  *device = exportable(address, &contiguous);
  for (std::uint64_t at = address; at - address < bytes; at += contiguous) {
    if (exportable(at, &contiguous) != *device || *device < 0) return false;
  }
  return true;
}

int descriptor_of(int device, std::uint64_t address, std::uint64_t bytes) {
  const int fd = memfd_create("simgpu-dma-buf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  dprintf(fd, "device=%d pid=%d address=%#llx bytes=%llu\n", device, static_cast<int>(getpid()),
          static_cast<unsigned long long>(address), static_cast<unsigned long long>(bytes));
  fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  return fd;
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address,
                                                             size_t bytes,
                                                             CUmemRangeHandleType type,
                                                             unsigned long long flags) {
  SIMGPU_ENTER_CONTEXT(cuMemGetHandleForAddressRange);
  if (handle == nullptr || bytes == 0 || address % kPage != 0 || bytes % kPage != 0 ||
      type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags != 0) return CUDA_ERROR_NOT_SUPPORTED;  // no PCIe BAR that it could lie in
  int device = -1;
  if (!is_all_of_one_device(address, bytes, &device)) return CUDA_ERROR_INVALID_VALUE;
  const int fd = descriptor_of(device, address, bytes);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = fd;
  return CUDA_SUCCESS;
}
