#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "tests/unit/shim/fake_driver.h"

/// The fake driver's calls about memory that leaves the process: handles as descriptors, pools,
/// dma-bufs, multicast objects.

namespace plexrl::shim::testing {
namespace {

FakeDriver* fake = nullptr;

#define COUNT(name)                        \
  const std::lock_guard lock(fake->mutex); \
  if (const CUresult failed = fake->count(#name); failed != CUDA_SUCCESS) return failed

/// A descriptor that names `number`; -1 when the system has none.
int descriptor_of(std::uint64_t number) {
  const int fd = ::memfd_create("fake-driver", MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (::pwrite(fd, &number, sizeof number, 0) == sizeof number) return fd;
  ::close(fd);
  return -1;
}

CUresult export_handle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                       unsigned long long) {
  COUNT(cuMemExportToShareableHandle);
  if (fake->handles.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  const int fd = descriptor_of(handle);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

/// The same handle once more: it takes one more release.
CUresult import_handle(CUmemGenericAllocationHandle* out, void* fd, CUmemAllocationHandleType) {
  COUNT(cuMemImportFromShareableHandle);
  std::uint64_t handle = 0;
  if (::pread(static_cast<int>(reinterpret_cast<std::uintptr_t>(fd)), &handle, sizeof handle, 0) !=
          sizeof handle ||
      fake->handles.count(handle) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++fake->imported[handle];
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult address_range(void* out, CUdeviceptr address, std::size_t, CUmemRangeHandleType,
                       unsigned long long) {
  COUNT(cuMemGetHandleForAddressRange);
  const auto next = fake->mappings.upper_bound(address);
  if (next == fake->mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(out) = static_cast<int>(std::prev(next)->second.handle);
  return CUDA_SUCCESS;
}

/// Reaches the one allocation that is mapped there.
CUresult set_attribute(const void* value, CUpointer_attribute, CUdeviceptr address) {
  COUNT(cuPointerSetAttribute);
  const auto next = fake->mappings.upper_bound(address);
  if (next == fake->mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [start, mapping] = *std::prev(next);
  if (address - start >= mapping.bytes) return CUDA_ERROR_INVALID_VALUE;
  fake->sync_memops[mapping.handle] = *static_cast<const unsigned*>(value);
  return CUDA_SUCCESS;
}

CUresult bind_memory(CUmemGenericAllocationHandle object, std::size_t offset,
                     CUmemGenericAllocationHandle memory, std::size_t, std::size_t bytes,
                     unsigned long long) {
  COUNT(cuMulticastBindMem);
  if (fake->handles.count(memory) == 0) return CUDA_ERROR_INVALID_VALUE;
  fake->bound[{object, offset}] = bytes;
  return CUDA_SUCCESS;
}

CUresult bind_address(CUmemGenericAllocationHandle object, std::size_t offset, CUdeviceptr,
                      std::size_t bytes, unsigned long long) {
  COUNT(cuMulticastBindAddr);
  fake->bound[{object, offset}] = bytes;
  return CUDA_SUCCESS;
}

CUresult unbind(CUmemGenericAllocationHandle object, CUdevice, std::size_t offset,
                std::size_t bytes) {
  COUNT(cuMulticastUnbind);
  const auto it = fake->bound.find({object, offset});
  if (it == fake->bound.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  fake->bound.erase(it);
  return CUDA_SUCCESS;
}

CUresult pool_create(CUmemoryPool* pool, const CUmemPoolProps*) {
  COUNT(cuMemPoolCreate);
  *pool = reinterpret_cast<CUmemoryPool>(fake->next_object += 0x100);
  return CUDA_SUCCESS;
}

CUresult pool_destroy(CUmemoryPool) {
  COUNT(cuMemPoolDestroy);
  return CUDA_SUCCESS;
}

}  // namespace

void FakeDriver::share() {
  fake = this;
  driver.cuMemExportToShareableHandle = &export_handle;
  driver.cuMemImportFromShareableHandle = &import_handle;
  driver.cuMemGetHandleForAddressRange = &address_range;
  driver.cuPointerSetAttribute = &set_attribute;
  driver.cuMulticastBindMem = &bind_memory;
  driver.cuMulticastBindAddr = &bind_address;
  driver.cuMulticastUnbind = &unbind;
  driver.cuMemPoolCreate = &pool_create;
  driver.cuMemPoolDestroy = &pool_destroy;
}

}  // namespace plexrl::shim::testing
