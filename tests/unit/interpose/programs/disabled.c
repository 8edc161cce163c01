// PLEXRL_DISABLE=1, linked with -lcuda: lookups give the driver's functions, exports go straight to
// it.
#include "check.h"

int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**);
int cuMemGetInfo_v2(size_t*, size_t*);
const char* fake_last_call(void);

int main(void) {
  CHECK(launch((void*)cuLaunchKernel) == 0);
  CHECK(strcmp(fake_last_call(), "cuLaunchKernel") == 0);
  size_t free_bytes = 0, total_bytes = 0;
  CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes) == 0);
  CHECK(free_bytes == 1000 && total_bytes == 2000);
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(IS_REAL(dlsym(cuda, "cuLaunchKernel")));
  void* function = NULL;
  CHECK(((GetProcFn)dlsym(cuda, "cuGetProcAddress_v2"))("cuInit", &function, 13000, 0, NULL) == 0);
  CHECK(IS_REAL(function));
  return 0;
}
