// A driver in a namespace of its own (dlmopen): no preload is there, so it is handed out as it is
// and not caught; the driver of the program's own namespace is caught as ever.
#include "check.h"

int main(void) {
  void* apart = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(apart != NULL);
  void* launch_apart = dlsym(apart, "cuLaunchKernel");
  CHECK(IS_REAL(launch_apart) && launch(launch_apart) == 0);
  CHECK(strcmp(((LastCallFn)dlsym(apart, "fake_last_call"))(), "cuLaunchKernel") == 0);

  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  LastCallFn last_call = (LastCallFn)dlsym(cuda, "fake_last_call");
  CHECK(strcmp(last_call(), "") == 0);
  void* launch_kernel = dlsym(cuda, "cuLaunchKernel");
  CHECK(IS_WRAPPER(launch_kernel) && launch(launch_kernel) == 0);
  CHECK(strcmp(last_call(), "cuLaunchKernel") == 0);
  CHECK(IS_REAL(dlsym(apart, "cuLaunchKernel")));
  return 0;
}
