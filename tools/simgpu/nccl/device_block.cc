#include "tools/simgpu/nccl/device_block.h"

namespace plexrl::simgpu::nccl {
namespace {

CUresult map(const CUmemLocation& location, DeviceBlock* block) {
  CUresult result = cuMemAddressReserve(&block->address, block->bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  result = cuMemMap(block->address, block->bytes, 0, block->handle, 0);
  if (result == CUDA_SUCCESS) {
    const CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = cuMemSetAccess(block->address, block->bytes, &access, 1);
    if (result == CUDA_SUCCESS) return result;
    cuMemUnmap(block->address, block->bytes);
  }
  cuMemAddressFree(block->address, block->bytes);
  return result;
}

}  // namespace

CUresult allocate(std::size_t bytes, DeviceBlock* block) {
  CUdevice device = 0;
  CUresult result = cuCtxGetDevice(&device);
  if (result != CUDA_SUCCESS) return result;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t unit = 0;
  result = cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS) return result;
  DeviceBlock fresh;
  fresh.bytes = (bytes + unit - 1) / unit * unit;
  result = cuMemCreate(&fresh.handle, fresh.bytes, &prop, 0);
  if (result != CUDA_SUCCESS) return result;
  result = map(prop.location, &fresh);
  if (result != CUDA_SUCCESS) {
    cuMemRelease(fresh.handle);
    return result;
  }
  *block = fresh;
  return CUDA_SUCCESS;
}

CUresult release(const DeviceBlock& block) {
  const CUresult unmapped = cuMemUnmap(block.address, block.bytes);
  cuMemAddressFree(block.address, block.bytes);
  const CUresult released = cuMemRelease(block.handle);
  return unmapped != CUDA_SUCCESS ? unmapped : released;
}

}  // namespace plexrl::simgpu::nccl
