// The job's own virtual memory management: reserved, created and mapped by itself, beside ordinary
// memory.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = program.device();
  std::size_t granularity;
  CHECK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  const std::size_t bytes = 2 * granularity, words = bytes / 4;
  CUdeviceptr address;
  CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CUmemGenericAllocationHandle handles[2];
  for (int i = 0; i < 2; ++i) {
    CHECK(cuMemCreate(&handles[i], granularity, &prop, 0));
    CHECK(cuMemMap(address + i * granularity, granularity, 0, handles[i], 0));
  }
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(address, bytes, &access, 1));
  const CUdeviceptr plain = allocate(bytes);
  CHECK(cuMemsetD32(address, 1, words));
  CHECK(cuMemsetD32(plain, 2, words));
  for (unsigned round = 0; round < 3; ++round) {
    launch(program.kernel("combine"), words, nullptr, plain, plain, address,
           static_cast<unsigned long long>(words), 7u);
    program.pause();
    launch(program.kernel("mix"), words, nullptr, address, static_cast<unsigned long long>(words),
           round);
  }
  print_device("own", address, bytes);
  print_device("plain", plain, bytes);
  CHECK(cuMemUnmap(address, bytes));
  for (const CUmemGenericAllocationHandle handle : handles) CHECK(cuMemRelease(handle));
  CHECK(cuMemAddressFree(address, bytes));
  CHECK(cuMemFree(plain));
}
