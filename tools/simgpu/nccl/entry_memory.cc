// Memory, and what is registered with a communicator. Registering makes nothing faster here and
// changes no result; the handles are checked.

#include <map>
#include <mutex>

#include "tools/simgpu/nccl/communicator.h"
#include "tools/simgpu/nccl/device_block.h"
#include "tools/simgpu/nccl/entry.h"
#include "tools/simgpu/nccl/group.h"

namespace plexrl::simgpu::nccl {
namespace {

std::mutex blocks_mutex;
auto& blocks = *new std::map<void*, DeviceBlock>;

void* add_registered(Communicator& communicator) {
  auto token = std::make_unique<char>();
  void* const handle = token.get();
  communicator.registered[handle] = std::move(token);
  return handle;
}

}  // namespace
}  // namespace plexrl::simgpu::nccl

using namespace plexrl::simgpu::nccl;

SIMGPU_NCCL(ncclResult_t, MemAlloc, (void** pointer, std::size_t bytes), (pointer, bytes)) {
  if (pointer == nullptr || bytes == 0) return ncclInvalidArgument;
  DeviceBlock block;
  if (allocate(bytes, &block) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  const std::lock_guard lock(blocks_mutex);
  *pointer = reinterpret_cast<void*>(block.address);
  blocks[*pointer] = block;
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, MemFree, (void* pointer), (pointer)) {
  if (pointer == nullptr) return ncclSuccess;
  DeviceBlock block;
  {
    const std::lock_guard lock(blocks_mutex);
    const auto found = blocks.find(pointer);
    if (found == blocks.end()) return ncclInvalidArgument;
    block = found->second;
    blocks.erase(found);
  }
  return release(block) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

SIMGPU_NCCL(ncclResult_t, CommRegister,
            (ncclComm_t comm, void* buffer, std::size_t bytes, void** handle),
            (comm, buffer, bytes, handle)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || buffer == nullptr || bytes == 0 || handle == nullptr)
    return ncclInvalidArgument;
  if (const ncclResult_t may = communicator->check(); may != ncclSuccess) return may;
  *handle = add_registered(*communicator);
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, CommDeregister, (ncclComm_t comm, void* handle), (comm, handle)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || communicator->registered.erase(handle) == 0)
    return ncclInvalidArgument;
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, CommWindowRegister,
            (ncclComm_t comm, void* buffer, std::size_t bytes, ncclWindow_t* window, int flags),
            (comm, buffer, bytes, window, flags)) {
  constexpr int kSymmetric = 1;
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || buffer == nullptr || bytes == 0 || window == nullptr ||
      (flags & ~kSymmetric) != 0)
    return Group::refuse(ncclInvalidArgument);
  if (const ncclResult_t may = communicator->check(); may != ncclSuccess) return Group::refuse(may);
  *window = nullptr;
  return Group::add(communicator, [=] {
    *window = reinterpret_cast<ncclWindow_t>(add_registered(*communicator));
    return ncclSuccess;
  });
}

SIMGPU_NCCL(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window),
            (comm, window)) {
  return body_CommDeregister(comm, window);
}
