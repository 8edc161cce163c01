// Memory of another API ("External Resource Interoperability"). Of such APIs the machine has none:
// what cuMemExportToShareableHandle gives stands for the descriptor that Vulkan would.

#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/external.h"

namespace plexrl::simgpu {
namespace {

struct External {
  std::uint32_t allocation;
  std::uint64_t bytes;  ///< as the program says
};

std::mutex external_mutex;
auto& externals = *new std::map<CUexternalMemory, std::unique_ptr<External>>;
auto& buffers = *new std::set<std::uint64_t>;  // ids of their ranges, which are of kind kIpc

}  // namespace

bool free_external(std::uint64_t address) {
  const auto range = driver()->addresses.find(address);
  const std::lock_guard lock(external_mutex);
  if (!range || range->base != address || buffers.erase(range->id) == 0) return false;
  unmap_import(*range);
  return true;
}

}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI
cuImportExternalMemory(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* what) {
  SIMGPU_ENTER_CONTEXT(cuImportExternalMemory);
  if (out == nullptr || what == nullptr || what->size == 0 ||
      (what->flags & ~static_cast<unsigned>(CUDA_EXTERNAL_MEMORY_DEDICATED)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (what->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  External external{0, what->size};
  Machine& machine = *driver()->machine;
  if (!machine.import_descriptor(what->handle.fd, &external.allocation))
    return CUDA_ERROR_INVALID_VALUE;
  if (machine.bytes_of(external.allocation) < external.bytes) {
    machine.release(external.allocation);
    return CUDA_ERROR_INVALID_VALUE;
  }
  close(what->handle.fd);  // the driver's from now on
  auto kept = std::make_unique<External>(external);
  const std::lock_guard lock(external_mutex);
  *out = reinterpret_cast<CUexternalMemory>(kept.get());
  externals[*out] = std::move(kept);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuExternalMemoryGetMappedBuffer(
    CUdeviceptr* pointer, CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
  SIMGPU_ENTER_CONTEXT(cuExternalMemoryGetMappedBuffer);
  if (pointer == nullptr || buffer == nullptr || buffer->flags != 0 || buffer->size == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(external_mutex);
  const auto found = externals.find(memory);
  if (found == externals.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto& [allocation, bytes] = *found->second;
  if (buffer->offset > bytes || buffer->size > bytes - buffer->offset)
    return CUDA_ERROR_INVALID_VALUE;
  if (buffer->offset != 0) return CUDA_ERROR_NOT_SUPPORTED;
  Machine& machine = *driver()->machine;
  Range range;
  range.device = machine.device_of(allocation);
  range.base = map_allocation(range.device, allocation);
  if (range.base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  machine.hold(allocation);
  range.bytes = buffer->size;
  range.kind = Range::Kind::kIpc;
  range.context = context;
  range.allocation = allocation;
  range.id = driver()->addresses.next_id();
  driver()->addresses.add(range);
  buffers.insert(range.id);
  *pointer = range.base;
  return CUDA_SUCCESS;
}

/// Its buffers stay until cuMemFree.
SIMGPU_EXPORT CUresult CUDAAPI cuDestroyExternalMemory(CUexternalMemory memory) {
  SIMGPU_ENTER_CONTEXT(cuDestroyExternalMemory);
  const std::lock_guard lock(external_mutex);
  const auto found = externals.find(memory);
  if (found == externals.end()) return CUDA_ERROR_INVALID_HANDLE;
  driver()->machine->release(found->second->allocation);
  externals.erase(found);
  return CUDA_SUCCESS;
}
