// Memory pools and their allocations between processes ("Interprocess communication support" of the
// stream-ordered allocator).

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/memory_pool.h"

namespace plexrl::simgpu {
namespace {

/// What a descriptor of a pool holds. The descriptor names the pool and keeps nothing alive.
struct PoolFile {
  std::uint64_t magic;
  std::uint64_t tag;
  std::int32_t device;  ///< the machine's
  char machine[68];
};
constexpr std::uint64_t kPoolMagic = 0x4c4f4f5053584c50;  // "PLXSPOOL"

struct PointerData {
  std::uint64_t magic;
  std::uint64_t pool_tag;
  MemoryPool::Part part;
  std::uint8_t unused[16];
};
static_assert(sizeof(PointerData) == sizeof(CUmemPoolPtrExportData));
constexpr std::uint64_t kPointerMagic = 0x5254505053584c50;  // "PLXSPPTR"

int make_descriptor(const MemoryPool& pool) {
  PoolFile file{};
  file.magic = kPoolMagic;
  file.tag = pool.tag();
  file.device = pool.device();
  driver()->machine->spec().name.copy(file.machine, sizeof file.machine - 1);
  const int fd = memfd_create("simgpu-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (write(fd, &file, sizeof file) == sizeof file && fcntl(fd, F_ADD_SEALS, kSeals) == 0)
    return fd;
  close(fd);
  return -1;
}

bool is_visible(int device) {
  const std::vector<int>& visible = driver()->visible;
  return std::find(visible.begin(), visible.end(), device) != visible.end();
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle,
                                                                CUmemAllocationHandleType type,
                                                                unsigned long long flags) {
  SIMGPU_ENTER(cuMemPoolExportToShareableHandle);
  const MemoryPool* const pool = find_pool(handle);
  if (out == nullptr || pool == nullptr || flags != 0 || pool->tag() == 0 || pool->is_imported() ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  const int fd = make_descriptor(*pool);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(out, &fd, sizeof fd);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* handle,
                                                                  CUmemAllocationHandleType type,
                                                                  unsigned long long flags) {
  SIMGPU_ENTER(cuMemPoolImportFromShareableHandle);
  if (pool == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  PoolFile file{};
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(handle));
  if (pread(fd, &file, sizeof file, 0) != sizeof file || file.magic != kPoolMagic)
    return CUDA_ERROR_INVALID_VALUE;
  file.machine[sizeof file.machine - 1] = 0;
  if (driver()->machine->spec().name != file.machine || !is_visible(file.device))
    return CUDA_ERROR_INVALID_VALUE;
  *pool = keep_pool(new MemoryPool(file.device, 0, file.tag, true));
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData* out,
                                                      CUdeviceptr pointer) {
  SIMGPU_ENTER(cuMemPoolExportPointer);
  const auto range = driver()->addresses.find(pointer);
  if (out == nullptr || !range || range->kind != Range::Kind::kPool || range->base != pointer)
    return CUDA_ERROR_INVALID_VALUE;
  auto* const pool = static_cast<MemoryPool*>(range->pool);
  PointerData data{};
  data.magic = kPointerMagic;
  data.pool_tag = pool->tag();
  if (pool->tag() == 0 || pool->is_imported() || !pool->locate(pointer, &data.part))
    return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(out, &data, sizeof data);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool handle,
                                                      CUmemPoolPtrExportData* in) {
  SIMGPU_ENTER(cuMemPoolImportPointer);
  MemoryPool* const pool = find_pool(handle);
  if (pointer == nullptr || in == nullptr || pool == nullptr || !pool->is_imported())
    return CUDA_ERROR_INVALID_VALUE;
  PointerData data;
  std::memcpy(&data, in, sizeof data);
  if (data.magic != kPointerMagic || data.pool_tag != pool->tag()) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t address = 0;
  const CUresult result = pool->import(data.part, &address);
  if (result == CUDA_SUCCESS) *pointer = address;
  return result;
}
