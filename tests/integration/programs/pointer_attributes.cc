// What the driver tells about a pointer, resident or not.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 5'000'000;
  const CUdeviceptr data = allocate(bytes), small = allocate(100);
  CHECK(cuMemsetD8(data, 1, bytes));
  CHECK(cuMemsetD8(small, 1, 100));
  void* host;
  CHECK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CUcontext current;
  CHECK(cuCtxGetCurrent(&current));
  const auto describe = [&](const char* name, CUdeviceptr base, CUdeviceptr inside) {
    unsigned type = 0;
    int ordinal = -1;
    CUcontext context = nullptr;
    unsigned managed = ~0u;
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    CHECK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
    std::printf("%s: type %u device %d context %s managed %u", name, type, ordinal,
                context == current ? "current" : "other", managed);
    // Booleans are four bytes wide, whatever was there before; nothing behind them is written.
    for (int which : {6, 8, 10, 13, 15, 21}) {
      auto attribute = static_cast<CUpointer_attribute>(which);
      unsigned one[] = {~0u, ~0u}, of_many[] = {~0u, ~0u};
      void* data[] = {of_many};
      CHECK(cuPointerGetAttribute(one, attribute, inside));
      CHECK(cuPointerGetAttributes(1, &attribute, data, inside));
      std::printf(" %d: %x %x, %x %x", which, one[0], one[1], of_many[0], of_many[1]);
    }
    CUdeviceptr start = 0;
    std::size_t size = 0;
    const CUresult range = cuMemGetAddressRange(&start, &size, inside);
    std::printf(" range %s start %s size %zu\n", error_name(range).c_str(),
                start == base ? "base" : "other", size);
  };
  for (int round = 0; round < 3; ++round) {
    describe("large", data, data + bytes / 2);
    describe("small", small, small + 50);
    unsigned type = 0;
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                reinterpret_cast<CUdeviceptr>(host)));
    std::printf("pinned: type %u\n", type);
    int here = 0;
    std::printf("stack: %s\n",
                error_name(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                 reinterpret_cast<CUdeviceptr>(&here)))
                    .c_str());
    program.pause();
    launch(program.kernel("mix"), 1000, nullptr, data, 1000ull, 1u);
  }
  CHECK(cuMemFree(data));
  std::printf("freed: %s\n", error_name(cuMemFree(data)).c_str());
  CHECK(cuMemFree(small));
  CHECK(cuMemFreeHost(host));
}
