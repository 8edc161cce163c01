// A program that looks for a driver, closes it and opens it again later must not meet stale
// addresses.
#include "check.h"

int main(void) {
  for (int round = 0; round < 3; ++round) {
    void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(launch(dlsym(cuda, "cuLaunchKernel")) == 0);
    LastCallFn last_call = (LastCallFn)dlsym(cuda, "fake_last_call");
    CHECK(strcmp(last_call(), "cuLaunchKernel") == 0);
    dlclose(cuda);
    CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL);  // what we call stays there
  }
  return 0;
}
