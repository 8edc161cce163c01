// dlopen + dlsym, RTLD_LOCAL as ctypes does it: wrappers for what the driver has, failures passed
// on.
#include "check.h"

int main(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(cuda != NULL);
  void* launch_kernel = dlsym(cuda, "cuLaunchKernel");
  CHECK(IS_WRAPPER(launch_kernel));
  CHECK(IS_WRAPPER(dlsym(cuda, "cuMemAlloc")));
  CHECK(IS_WRAPPER(dlsym(cuda, "cuMemAlloc_v2")));
  CHECK(dlsym(cuda, "cuMemAlloc") != dlsym(cuda, "cuMemAlloc_v2"));
  CHECK(dlerror() == NULL);

  CHECK(dlsym(cuda, "cuMemAllocPitch_v2") == NULL);
  const char* message = dlerror();
  CHECK(message != NULL && strstr(message, "cuMemAllocPitch_v2") != NULL);

  CHECK(launch(launch_kernel) == 0);
  LastCallFn last_call = (LastCallFn)dlsym(cuda, "fake_last_call");
  CHECK(strcmp(last_call(), "cuLaunchKernel") == 0);
  size_t gated = 0, unknown = 0;
  CHECK(((InfoFn)dlsym(cuda, "cuMemGetInfo_v2"))(&gated, &unknown) == 0);
  CHECK(gated == 1 && unknown == 0);
  return 0;
}
