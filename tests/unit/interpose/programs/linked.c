// A program linked with -lcuda: its calls are bound to our exports, which find the driver behind
// them.
#include "check.h"

int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**);
int cuMemGetInfo_v2(size_t*, size_t*);
const char* fake_last_call(void);

int main(void) {
  CHECK(launch((void*)cuLaunchKernel) == 0);
  CHECK(strcmp(fake_last_call(), "cuLaunchKernel") == 0);
  CHECK(IS_WRAPPER(dlsym(RTLD_DEFAULT, "cuLaunchKernel")));
  CHECK(IS_WRAPPER(dlsym(RTLD_NEXT, "cuLaunchKernel")));
  CHECK(IS_WRAPPER(dlsym(dlopen(NULL, RTLD_NOW), "cuLaunchKernel")));
  CHECK(dlerror() == NULL);
  CHECK(dlsym(RTLD_DEFAULT, "cuMemAllocPitch_v2") == NULL);
  CHECK(dlerror() != NULL);
  CHECK(dlsym(dlopen(NULL, RTLD_NOW), "cuMemAllocPitch_v2") == NULL);
  CHECK(dlerror() != NULL);
  size_t gated = 0, unknown = 0;
  CHECK(cuMemGetInfo_v2(&gated, &unknown) == 0);
  CHECK(gated == 1 && unknown == 0);
  return 0;
}
