// What may be done with a handle of virtual memory management, in HBM and away from it: two
// mappings of one handle, a new mapping elsewhere with the old bytes, handles retained by address,
// access, properties, pointer queries, and calls that must fail.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;

void print_place(const char* name, CUdeviceptr address, CUdeviceptr reservation) {
  CUdeviceptr start = 0, mapping = 0, range = 0;
  std::size_t bytes = 0, mapping_bytes = 0, range_bytes = 0;
  int device = -1;
  unsigned int type = 0;
  unsigned long long types = 9;
  CHECK(cuMemGetAddressRange(&start, &bytes, address + 5));
  CHECK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address + 5));
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 5));
  CHECK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address + 5));
  CHECK(cuPointerGetAttribute(&mapping, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address + 5));
  CHECK(cuPointerGetAttribute(&mapping_bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address + 5));
  CHECK(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 5));
  CHECK(cuPointerGetAttribute(&range_bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 5));
  std::printf(
      "%s: device %d, type %u, handle types %llu, range +%llu %zu, mapping +%llu %zu, "
      "address range +%llu %zu\n",
      name, device, type, types, range - reservation, range_bytes, mapping - reservation,
      mapping_bytes, start - reservation, bytes);
}

}  // namespace

int main() {
  Program program;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr area;
  CHECK(cuMemAddressReserve(&area, 4 * kBytes, 0, 0, 0));
  CUmemGenericAllocationHandle handle, same;
  CHECK(cuMemCreate(&handle, kBytes, &prop, 0));
  program.pause();  // a handle without a mapping

  CHECK(cuMemMap(area, kBytes, 0, handle, 0));
  CHECK(cuMemSetAccess(area, kBytes, &access, 1));
  CHECK(cuMemsetD32(area, 3, kWords));
  // The second mapping sees what the first one writes.
  CHECK(cuMemMap(area + 2 * kBytes, kBytes, 0, handle, 0));
  CHECK(cuMemSetAccess(area + 2 * kBytes, kBytes, &access, 1));
  program.pause();
  launch(program.kernel("mix"), kWords, nullptr, area + 2 * kBytes,
         static_cast<unsigned long long>(kWords), 5u);
  CHECK(cuCtxSynchronize());
  print_device("first mapping", area, kBytes);
  print_place("first", area, area);
  program.pause();
  print_place("second", area + 2 * kBytes, area);

  unsigned long long flags = 0;
  CHECK(cuMemGetAccess(&flags, &access.location, area + 100));
  std::printf("access: %llu\n", flags);
  CHECK(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(area + 2 * kBytes)));
  std::printf("retained: %s\n", same == handle ? "the same handle" : "another handle");
  CUmemAllocationProp found = {};
  CHECK(cuMemGetAllocationPropertiesFromHandle(&found, same));
  std::printf("properties: type %d, location %d %d\n", static_cast<int>(found.type),
              static_cast<int>(found.location.type), found.location.id);
  CHECK(cuMemRelease(same));
  CHECK(cuMemRelease(handle));  // the mappings keep the memory

  std::printf("where something is: %s\n", error_name(cuMemMap(area, kBytes, 0, handle, 0)).c_str());
  std::printf("half of it: %s\n", error_name(cuMemUnmap(area, kBytes / 2)).c_str());
  std::printf("a reservation in use: %s\n", error_name(cuMemAddressFree(area, 4 * kBytes)).c_str());
  std::printf("access to a hole: %s\n",
              error_name(cuMemSetAccess(area + kBytes, kBytes, &access, 1)).c_str());

  launch(program.kernel("mix"), kWords, nullptr, area, static_cast<unsigned long long>(kWords), 6u);
  CHECK(cuCtxSynchronize());
  CHECK(cuMemUnmap(area, kBytes));
  program.pause();
  // Elsewhere, by the handle that the last mapping still knows.
  CHECK(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(area + 2 * kBytes)));
  launch(program.kernel("mix"), kWords, nullptr, area + 2 * kBytes,
         static_cast<unsigned long long>(kWords), 7u);
  CHECK(cuCtxSynchronize());
  CHECK(cuMemUnmap(area + 2 * kBytes, kBytes));
  program.pause();
  CHECK(cuMemMap(area + 3 * kBytes, kBytes, 0, same, 0));
  CHECK(cuMemSetAccess(area + 3 * kBytes, kBytes, &access, 1));
  print_device("moved", area + 3 * kBytes, kBytes);
  CHECK(cuMemUnmap(area + 3 * kBytes, kBytes));
  CHECK(cuMemRelease(same));
  std::printf("released: %s\n", error_name(cuMemRelease(same)).c_str());
  CHECK(cuMemAddressFree(area, 4 * kBytes));
}
