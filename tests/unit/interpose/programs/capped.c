// PLEXRL_DRIVER_CAP=12080: a driver of that version, which has nothing newer.
#include "check.h"

int main(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
  int version = 0;
  CHECK(((int (*)(int*))dlsym(cuda, "cuDriverGetVersion"))(&version) == 0);
  CHECK(version == 12080);
  CHECK(IS_WRAPPER(dlsym(cuda, "cuCtxGetDevice")));
  CHECK(dlsym(cuda, "cuCtxGetDevice_v2") == NULL);
  CHECK(dlerror() != NULL);
  CHECK(dlsym(cuda, "cuLaunchWarp") == NULL);
  GetProcFn get = (GetProcFn)dlsym(cuda, "cuGetProcAddress_v2");
  void* function = NULL;
  CHECK(get("cuCtxGetDevice", &function, 13000, 0, NULL) == 0);
  CHECK(function == dlsym(cuda, "cuCtxGetDevice"));
  CHECK(get("cuLaunchWarp", &function, 13010, 0, NULL) == 500 && function == NULL);
  return 0;
}
