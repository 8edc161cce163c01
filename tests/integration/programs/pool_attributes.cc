// A pool's own account of itself, and what trimming gives back: the figures that programs read,
// with the pool's memory in HBM and away from it.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

cuuint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  CHECK(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

void print_figures(const char* when, CUmemoryPool pool) {
  const cuuint64_t used = figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  const cuuint64_t reserved = figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  std::printf("%s: used %llu, high %llu, reserved %s\n", when,
              static_cast<unsigned long long>(used),
              static_cast<unsigned long long>(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH)),
              reserved == 0      ? "nothing"
              : reserved >= used ? "enough"
                                 : "too little");
}

CUdeviceptr take(CUmemoryPool pool, std::size_t bytes, CUstream stream) {
  CUdeviceptr address;
  CHECK(cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
  return address;
}

void show_kind(CUmemoryPool pool, CUdeviceptr address) {
  CUmemoryPool owner = nullptr;
  unsigned int type = 0;
  std::size_t size = 0;
  CUdeviceptr start = 0;
  CHECK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address + 100));
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 100));
  CHECK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 100));
  CHECK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 100));
  std::printf("pointer: %s, type %u, %zu bytes, %s\n", owner == pool ? "of the pool" : "of another",
              type, size, start == address ? "from its start" : "from elsewhere");
}

}  // namespace

int main() {
  Program program;
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  CUmemoryPool pool;
  CHECK(cuMemPoolCreate(&pool, &props));
  print_figures("new", pool);

  const std::size_t bytes = 4 << 20;
  cuuint64_t threshold = ~cuuint64_t{0};
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  const CUdeviceptr kept = take(pool, bytes, stream), small = take(pool, 1000, stream);
  CUdeviceptr passing = take(pool, bytes, stream);
  CHECK(cuMemsetD32Async(kept, 7, bytes / 4, stream));
  CHECK(cuMemsetD8Async(small, 3, 1000, stream));
  CHECK(cuMemsetD32Async(passing, 8, bytes / 4, stream));
  show_kind(pool, kept);
  CHECK(cuMemFreeAsync(passing, stream));
  CHECK(cuStreamSynchronize(stream));
  program.pause();
  print_figures("one freed, all kept", pool);
  show_kind(pool, kept);
  launch(program.kernel("mix"), bytes / 4, stream, kept, static_cast<unsigned long long>(bytes / 4),
         9u);
  passing = take(pool, bytes, stream);
  CHECK(cuMemsetD32Async(passing, 10, bytes / 4, stream));
  CHECK(cuStreamSynchronize(stream));
  print_device("passing", passing, bytes);
  print_figures("taken again", pool);
  CHECK(cuMemFreeAsync(passing, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemPoolTrimTo(pool, 0));
  print_figures("trimmed", pool);
  cuuint64_t zero = 0;
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  print_figures("high mark reset", pool);
  program.pause();
  print_device("kept", kept, bytes);
  print_device("small", small, 1000);
  CHECK(cuMemFree(kept));
  CHECK(cuMemFreeAsync(small, stream));
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &zero));
  CHECK(cuStreamSynchronize(stream));
  print_figures("all freed", pool);
  std::printf("freed twice: %s\n", error_name(cuMemFreeAsync(kept, stream)).c_str());
  std::printf("no bytes: %s\n", error_name(cuMemAllocAsync(&passing, 0, stream)).c_str());
  int follow = 5;
  CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follow));
  std::printf("follows events: %d\n", follow);
  CHECK(cuMemPoolDestroy(pool));
  CHECK(cuStreamDestroy(stream));
}
