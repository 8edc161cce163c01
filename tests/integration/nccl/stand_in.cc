// A libnccl.so.2 of one rank that only registers and allocates memory, as NCCL does: handles of
// cuMemCreate, mapped for all devices. NVIDIA's does not run on the simulated GPU.
#include <cuda.h>

#include <cstddef>
#include <map>
#include <mutex>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0, kUnhandledCudaError = 1, kInvalidArgument = 4;

struct Memory {
  CUmemGenericAllocationHandle handle;
  std::size_t bytes;
};
std::mutex mutex;
std::map<CUdeviceptr, Memory> allocated;
int communicator = 0;  // all there is of it

int code(CUresult result) { return result == CUDA_SUCCESS ? kSuccess : kUnhandledCudaError; }

/// Makes a handle of the current device's and maps it; on failure nothing is left.
CUresult allocate(std::size_t bytes, CUdeviceptr* address, Memory* memory) {
  CUdevice device = 0;
  CUmemAllocationProp prop = {};
  if (const CUresult result = cuCtxGetDevice(&device); result != CUDA_SUCCESS) return result;
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t unit = 0;
  CUresult result =
      cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS) return result;
  memory->bytes = (bytes + unit - 1) / unit * unit;
  result = cuMemCreate(&memory->handle, memory->bytes, &prop, 0);
  if (result != CUDA_SUCCESS) return result;
  result = cuMemAddressReserve(address, memory->bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) {
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = cuMemMap(*address, memory->bytes, 0, memory->handle, 0);
    if (result == CUDA_SUCCESS) {
      result = cuMemSetAccess(*address, memory->bytes, &access, 1);
      if (result == CUDA_SUCCESS) return result;
      cuMemUnmap(*address, memory->bytes);
    }
    cuMemAddressFree(*address, memory->bytes);
  }
  cuMemRelease(memory->handle);
  return result;
}

}  // namespace

EXPORT int ncclCommInitAll(void** comms, int count, const int*) {
  if (count != 1) return kInvalidArgument;
  comms[0] = &communicator;
  return kSuccess;
}
EXPORT int ncclCommDestroy(void*) { return kSuccess; }

EXPORT int ncclCommRegister(void*, void* buffer, std::size_t, void** handle) {
  *handle = buffer;
  return kSuccess;
}
EXPORT int ncclCommDeregister(void*, void*) { return kSuccess; }
EXPORT int ncclCommWindowRegister(void*, void* buffer, std::size_t, void** window, int) {
  *window = buffer;
  return kSuccess;
}
EXPORT int ncclCommWindowDeregister(void*, void*) { return kSuccess; }

EXPORT int ncclMemAlloc(void** out, std::size_t bytes) {
  CUdeviceptr address = 0;
  Memory memory = {};
  const CUresult result = allocate(bytes, &address, &memory);
  if (result != CUDA_SUCCESS) return code(result);
  const std::lock_guard lock(mutex);
  allocated[address] = memory;
  *out = reinterpret_cast<void*>(address);
  return kSuccess;
}

EXPORT int ncclMemFree(void* pointer) {
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const std::lock_guard lock(mutex);
  const auto found = allocated.find(address);
  if (found == allocated.end()) return kInvalidArgument;
  const Memory memory = found->second;
  allocated.erase(found);
  const CUresult unmapped = cuMemUnmap(address, memory.bytes);
  cuMemAddressFree(address, memory.bytes);
  const CUresult released = cuMemRelease(memory.handle);
  return code(unmapped != CUDA_SUCCESS ? unmapped : released);
}
