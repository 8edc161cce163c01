// The same calls found by dlopen + dlsym and by cuGetProcAddress, old and new versions, end at the
// same memory.
#include <dlfcn.h>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto by_name = [&](const char* name) { return dlsym(library, name); };
  const auto by_version = [](const char* name, int version) {
    void* function = nullptr;
    CHECK(cuGetProcAddress(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, nullptr));
    return function;
  };
  const auto alloc_named = reinterpret_cast<decltype(&cuMemAlloc)>(by_name("cuMemAlloc_v2"));
  const auto alloc_asked = reinterpret_cast<decltype(&cuMemAlloc)>(by_version("cuMemAlloc", 3020));
  const auto free_asked = reinterpret_cast<decltype(&cuMemFree)>(by_version("cuMemFree", 12000));
  const auto memset_named = reinterpret_cast<decltype(&cuMemsetD32)>(by_name("cuMemsetD32_v2"));
  const auto launch_asked =
      reinterpret_cast<decltype(&cuLaunchKernel)>(by_version("cuLaunchKernel", 4000));
  const auto copy_asked =
      reinterpret_cast<decltype(&cuMemcpyDtoH)>(by_version("cuMemcpyDtoH", 3020));
  std::size_t words = 1 << 20;
  CUdeviceptr a, b;
  CHECK(alloc_named(&a, 4 * words));
  CHECK(alloc_asked(&b, 4 * words));
  CHECK(memset_named(a, 3, words));
  CHECK(memset_named(b, 4, words));
  std::vector<unsigned char> data(4 * words);
  for (unsigned round = 0; round < 3; ++round) {
    program.pause();
    unsigned long long count = words;
    void* arguments[] = {&a, &a, &b, &count, &round};
    CHECK(launch_asked(program.kernel("combine"), static_cast<unsigned>(words / 128), 1, 1, 128, 1,
                       1, 0, nullptr, arguments, nullptr));
    program.pause();
    CHECK(copy_asked(data.data(), a, data.size()));
    print_host("a", data.data(), data.size());
  }
  CHECK(free_asked(a));
  CHECK(cuMemFree(b));
}
