// A program that has CUPTI in it, the library that profilers are built on (PLEXRL_TEST_CUPTI: its
// file), and asks it for callbacks at every call of the driver: what CUPTI answers, and the
// program's own work, are as without PlexRL, whether the driver lets CUPTI in or not.
#include <dlfcn.h>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

// Of cupti_callbacks.h, for a library that need not be there when this is built.
using Subscribe = int (*)(void** subscriber, void (*callback)(void*, int, unsigned, const void*),
                          void* data);
using EnableDomain = int (*)(unsigned enable, void* subscriber, int domain);
using Unsubscribe = int (*)(void* subscriber);
constexpr int kDriverDomain = 1;

unsigned called = 0;

void on_call(void*, int, unsigned, const void*) { ++called; }

void* library() {
  const char* const path = std::getenv("PLEXRL_TEST_CUPTI");
  void* const found = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (found == nullptr) {
    std::fprintf(stderr, "PLEXRL_TEST_CUPTI: %s\n", path == nullptr ? "not set" : dlerror());
    std::exit(1);
  }
  return found;
}

template <typename Function>
Function function(void* in, const char* name) {
  return reinterpret_cast<Function>(dlsym(in, name));
}

}  // namespace

int main() {
  void* const cupti = library();
  void* subscriber = nullptr;
  const int subscribed =
      function<Subscribe>(cupti, "cuptiSubscribe")(&subscriber, on_call, nullptr);
  std::printf("subscribed: %d\n", subscribed);
  if (subscribed == 0) {
    std::printf("enabled: %d\n",
                function<EnableDomain>(cupti, "cuptiEnableDomain")(1, subscriber, kDriverDomain));
  }
  Program program;
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const CUdeviceptr data = allocate(bytes);
  CHECK(cuMemsetD32(data, 3, words));
  for (unsigned round = 0; round < 3; ++round) {
    launch(program.kernel("mix"), words, nullptr, data, static_cast<unsigned long long>(words),
           round);
    program.pause();
  }
  print_device("data", data, bytes);
  CHECK(cuMemFree(data));
  std::printf("callbacks: %s\n", called > 0 ? "some" : "none");
  if (subscribed == 0) {
    std::printf("unsubscribed: %d\n", function<Unsubscribe>(cupti, "cuptiUnsubscribe")(subscriber));
  }
}
