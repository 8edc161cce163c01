// Managed memory: host and kernels write it in turn, beside device memory that is taken away, and a
// __managed__ variable.
#include <cstring>

#include "tests/integration/programs/memory_kinds.ptx.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 6 << 20, words = bytes / 4;  // run_figures.py knows this size
  CUdeviceptr managed = 0;
  CHECK(cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL));
  auto* const host = reinterpret_cast<std::uint32_t*>(managed);
  const CUdeviceptr data = allocate(bytes);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  unsigned is_managed = 0;
  CHECK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed + 5));
  std::printf("managed: %u\n", is_managed & 0xff);

  std::memcpy(host, pattern(bytes, 5).data(), bytes);
  launch(program.kernel("mix"), words, stream, managed, words, 3u);
  CHECK(cuStreamSynchronize(stream));
  print_host("mixed", host, bytes);
  program.pause();
  // Without a lease the host still reaches it.
  host[0] += 7;
  host[words - 1] ^= host[0];
  CHECK(cuMemcpyDtoDAsync(data, managed, bytes, stream));
  launch(program.kernel("mix"), words, stream, data, words, 9u);
  CHECK(cuMemAdvise(managed, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY,
                    CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}}));
  CHECK(cuStreamSynchronize(stream));
  program.pause();
  CHECK(
      cuMemPrefetchAsync(managed, bytes, CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, {0}}, 0, stream));
  launch(program.kernel("combine"), words, stream, managed, managed, data, words, 5u);
  CHECK(cuStreamSynchronize(stream));
  int prefetched = 0;
  CHECK(cuMemRangeGetAttribute(&prefetched, sizeof prefetched,
                               CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, managed, bytes));
  std::printf("prefetched to the host: %d\n", prefetched == CU_DEVICE_CPU);
  print_host("combined", host, bytes);
  print_device("data", data, bytes);

  CUmodule own;
  CHECK(cuModuleLoadData(&own, memory_kinds_ptx));
  CUdeviceptr variable = 0;
  CHECK(cuModuleGetGlobal(&variable, nullptr, own, "managed_total"));
  CUfunction add;
  CHECK(cuModuleGetFunction(&add, own, "add_to_managed"));
  auto* const total = reinterpret_cast<volatile std::uint32_t*>(variable);
  std::printf("variable: %u", *total);
  *total = 1000;
  program.pause();
  launch(add, 256, stream, 3u);
  CHECK(cuStreamSynchronize(stream));
  std::printf(", then %u\n", *total);

  CHECK(cuModuleUnload(own));
  CHECK(cuStreamDestroy(stream));
  CHECK(cuMemFree(data));
  CHECK(cuMemFree(managed));
}
