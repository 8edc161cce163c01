// Legacy memory handles between processes (cuIpc*).

#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint32_t kMagic = 0x4d435049;  // "IPCM"

/// The 64 bytes of a CUipcMemHandle. A handle names memory and keeps nothing alive: the exporter
/// must keep it until it is opened, as the reference says.
struct MemHandle {
  std::uint32_t magic;
  std::uint32_t allocation;
  std::uint64_t tag;     ///< tells the allocation from a later one of the same number
  std::uint64_t offset;  ///< of the exported memory in the allocation
  std::uint64_t bytes;
  std::int64_t pid;
  std::uint8_t unused[24];
};
static_assert(sizeof(MemHandle) == sizeof(CUipcMemHandle));

struct Opened {
  Context* context;
  MemHandle handle;
  int uses;
};

std::mutex opened_mutex;
auto& opened = *new std::map<std::uint64_t, Opened>;  // by address

/// One more use of a handle that this context has open already.
bool use_again(const Context* context, const MemHandle& handle, std::uint64_t* address) {
  for (auto one = opened.begin(); one != opened.end();) {
    if (!driver()->addresses.find(one->first)) {  // went with its context
      one = opened.erase(one);
      continue;
    }
    if (one->second.context == context &&
        std::memcmp(&one->second.handle, &handle, sizeof handle) == 0) {
      ++one->second.uses;
      *address = one->first;
      return true;
    }
    ++one;
  }
  return false;
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr pointer) {
  SIMGPU_ENTER_CONTEXT(cuIpcGetMemHandle);
  MemHandle handle{};
  if (out == nullptr || !find_allocation(pointer, &handle.allocation, &handle.offset))
    return CUDA_ERROR_INVALID_VALUE;
  handle.magic = kMagic;
  handle.tag = driver()->machine->tag_of(handle.allocation);
  handle.bytes = driver()->addresses.find(pointer)->bytes;
  handle.pid = driver()->pid;
  std::memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle in,
                                                     unsigned int flags) {
  SIMGPU_ENTER_CONTEXT(cuIpcOpenMemHandle_v2);
  if (pointer == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  MemHandle handle;
  std::memcpy(&handle, &in, sizeof handle);
  if (handle.magic != kMagic) return CUDA_ERROR_INVALID_HANDLE;
  if (handle.pid == driver()->pid) return CUDA_ERROR_INVALID_CONTEXT;  // for other processes only
  const std::lock_guard lock(opened_mutex);
  std::uint64_t address = 0;
  if (use_again(context, handle, &address)) {
    *pointer = address;
    return CUDA_SUCCESS;
  }
  Machine& machine = *driver()->machine;
  if (!machine.import_id(handle.allocation, handle.tag)) return CUDA_ERROR_INVALID_HANDLE;
  const bool fits = handle.offset < machine.bytes_of(handle.allocation) &&
                    handle.bytes <= machine.bytes_of(handle.allocation) - handle.offset;
  const int device = machine.device_of(handle.allocation);
  const std::uint64_t base = fits ? map_allocation(device, handle.allocation) : 0;
  if (base == 0) {
    machine.release(handle.allocation);
    return fits ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_HANDLE;
  }
  // Peer access comes with the flag: a context of another device reaches the memory too.
  if (device != context->device)
    driver()->addresses.share(device, context->device, base, machine.bytes_of(handle.allocation));
  Range range;
  range.base = base + handle.offset;
  range.bytes = handle.bytes;
  range.kind = Range::Kind::kIpc;
  range.device = device;
  range.context = context;
  range.allocation = handle.allocation;
  range.id = driver()->addresses.next_id();
  driver()->addresses.add(range);
  opened[range.base] = {context, handle, 1};
  *pointer = range.base;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle,
                                                  unsigned int flags) {
  return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

SIMGPU_EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr pointer) {
  SIMGPU_ENTER(cuIpcCloseMemHandle);
  const std::lock_guard lock(opened_mutex);
  const auto found = opened.find(pointer);
  const auto range = driver()->addresses.find(pointer);
  if (found == opened.end() || !range || range->kind != Range::Kind::kIpc)
    return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.uses > 0) return CUDA_SUCCESS;
  opened.erase(found);
  unmap_import(*range);
  return CUDA_SUCCESS;
}
