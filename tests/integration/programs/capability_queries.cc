// What the driver says that its devices, contexts and memory can do: none of it is PlexRL's to
// change. (Sizes and free memory are: memory_view.) Runner: gpus=2
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

void show_device(CUdevice device) {
  char name[64];
  CHECK(cuDeviceGetName(name, sizeof name, device));
  std::printf("device %d: %s\n", device, name);
  for (int number = 1; number < CU_DEVICE_ATTRIBUTE_MAX; ++number) {
    int value = -1;
    const auto which = static_cast<CUdevice_attribute>(number);
    const CUresult result = cuDeviceGetAttribute(&value, which, device);
    std::printf("  attribute %d: %s %d\n", number, error_name(result).c_str(), value);
  }
  for (const CUexecAffinityType type : {CU_EXEC_AFFINITY_TYPE_SM_COUNT}) {
    int supported = -1;
    const CUresult result = cuDeviceGetExecAffinitySupport(&supported, type, device);
    std::printf("  affinity %d: %s %d\n", type, error_name(result).c_str(), supported);
  }
}

void show_pair(CUdevice from, CUdevice to) {
  int can = -1;
  const CUresult result = cuDeviceCanAccessPeer(&can, from, to);
  std::printf("%d to %d: can access %s %d", from, to, error_name(result).c_str(), can);
  for (const auto which :
       {CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
        CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
        CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED}) {
    int value = -1;
    const CUresult asked = cuDeviceGetP2PAttribute(&value, which, from, to);
    std::printf(", %d %s %d", which, error_name(asked).c_str(), value);
  }
  std::printf("\n");
}

CUmemAllocationProp rdma_properties(CUdevice device) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.allocFlags.gpuDirectRDMACapable = 1;
  return prop;
}

void show_virtual_memory(CUdevice device) {
  const CUmemAllocationProp prop = rdma_properties(device);
  std::size_t least = 0, best = 0;
  CHECK(cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK(cuMemGetAllocationGranularity(&best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  std::printf("granularity: %zu, %zu\n", least, best);
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, best, &prop, 0));
  CUmemAllocationProp seen = {};
  CHECK(cuMemGetAllocationPropertiesFromHandle(&seen, handle));
  std::printf("properties: type %d location %d %d handle types %d rdma %d compression %d\n",
              seen.type, seen.location.type, seen.location.id, seen.requestedHandleTypes,
              seen.allocFlags.gpuDirectRDMACapable, seen.allocFlags.compressionType);
  CHECK(cuMemRelease(handle));
}

void show_context() {
  for (int limit = 0; limit < CU_LIMIT_MAX; ++limit) {
    std::size_t value = 0;
    const CUresult result = cuCtxGetLimit(&value, static_cast<CUlimit>(limit));
    std::printf("limit %d: %s %zu\n", limit, error_name(result).c_str(), value);
  }
  int least = 9, greatest = 9;
  CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
  std::printf("priorities: %d to %d\n", least, greatest);
  std::printf(
      "flush of remote writes: %s\n",
      error_name(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                            CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER))
          .c_str());
}

}  // namespace

int main() {
  Program program;
  const CUdeviceptr data = allocate(1 << 20);
  for (int round = 0; round < 2; ++round) {
    CHECK(cuMemsetD8(data, 1, 1 << 20));
    int version = 0, count = 0;
    CHECK(cuDriverGetVersion(&version));
    CHECK(cuDeviceGetCount(&count));
    std::printf("version %d, %d devices\n", version, count);
    for (int device = 0; device < count; ++device) {
      show_device(device);
      for (int other = 0; other < count; ++other) show_pair(device, other);
    }
    show_virtual_memory(program.device());
    show_context();
    program.pause();
  }
  CHECK(cuMemFree(data));
}
