// What virtual memory management costs by size. For each size from 2 MiB (or the granularity, where
// that is more) to LARGEST_MIB, doubling, it creates, maps, gives access to, unmaps and releases
// memory of that size ROUNDS times, and prints a line
//
//     BYTES CREATE_NS MAP_NS SET_ACCESS_NS UNMAP_NS RELEASE_NS
//
// of medians. Nothing else is on the device, and nothing is written. Usage: vmm_cost LARGEST_MIB
// ROUNDS

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "tests/bench/programs/cuda_check.h"

namespace {

enum Call { kCreate, kMap, kSetAccess, kUnmap, kRelease, kCalls };

class Clock {
 public:
  /// ns since the last lap, or since this was made.
  std::int64_t lap() {
    const auto now = std::chrono::steady_clock::now();
    const std::int64_t took = std::chrono::nanoseconds(now - last_).count();
    last_ = now;
    return took;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

std::array<std::int64_t, kCalls> measure(CUdeviceptr address, std::size_t bytes,
                                         const CUmemAllocationProp& prop) {
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  std::array<std::int64_t, kCalls> took;
  CUmemGenericAllocationHandle handle;
  Clock clock;
  CHECK_CU(cuMemCreate(&handle, bytes, &prop, 0));
  took[kCreate] = clock.lap();
  CHECK_CU(cuMemMap(address, bytes, 0, handle, 0));
  took[kMap] = clock.lap();
  CHECK_CU(cuMemSetAccess(address, bytes, &access, 1));
  took[kSetAccess] = clock.lap();
  CHECK_CU(cuMemUnmap(address, bytes));
  took[kUnmap] = clock.lap();
  CHECK_CU(cuMemRelease(handle));
  took[kRelease] = clock.lap();
  return took;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t largest = argc == 3 ? std::strtoull(argv[1], nullptr, 10) << 20 : 0;
  const int rounds = argc == 3 ? std::atoi(argv[2]) : 0;
  if (largest < std::size_t{2} << 20 || rounds < 1) {
    std::fprintf(stderr, "usage: vmm_cost LARGEST_MIB ROUNDS\n");
    return 2;
  }
  CUdevice device;
  CUcontext context;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDeviceGet(&device, 0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_CU(cuCtxSetCurrent(context));
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  std::size_t granularity;
  CHECK_CU(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr address;
  CHECK_CU(cuMemAddressReserve(&address, largest, 0, 0, 0));

  for (std::size_t bytes = std::max(granularity, std::size_t{2} << 20); bytes <= largest;
       bytes *= 2) {
    measure(address, bytes, prop);  // warms up
    std::array<std::vector<std::int64_t>, kCalls> times;
    for (int round = 0; round < rounds; ++round) {
      const auto took = measure(address, bytes, prop);
      for (std::size_t call = 0; call < kCalls; ++call) times[call].push_back(took[call]);
    }
    std::printf("%zu", bytes);
    for (auto& one : times) {
      std::sort(one.begin(), one.end());
      std::printf(" %lld", static_cast<long long>(one[one.size() / 2]));
    }
    std::printf("\n");
  }
  CHECK_CU(cuMemAddressFree(address, largest));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  return 0;
}
