// __device__ and __constant__ variables keep their values, and can be read and written by name.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

#include "tests/integration/programs/kernels.ptx.h"

int main() {
  Program program;
  CUmodule module;
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  CUfunction count;
  CHECK(cuModuleGetFunction(&count, module, "count_globals"));
  CUdeviceptr counters, sum, table;
  std::size_t counter_bytes, sum_bytes, table_bytes;
  CHECK(cuModuleGetGlobal(&counters, &counter_bytes, module, "global_counters"));
  CHECK(cuModuleGetGlobal(&sum, &sum_bytes, module, "global_sum"));
  CHECK(cuModuleGetGlobal(&table, &table_bytes, module, "constant_table"));
  for (unsigned round = 0; round < 4; ++round) {
    void* arguments[] = {&round};
    CHECK(cuLaunchKernel(count, 1, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
    program.pause();
    if (round == 1) {
      const std::uint32_t entry = 1234567;
      CHECK(cuMemcpyHtoD(table + 4 * 5, &entry, 4));
    }
  }
  std::uint64_t value = 0;
  CHECK(cuMemcpyDtoH(&value, sum, sum_bytes));
  std::printf("sum: %llu\n", static_cast<unsigned long long>(value));
  print_device("counters", counters, counter_bytes);
  print_device("table", table, table_bytes);
  CHECK(cuModuleUnload(module));
}
