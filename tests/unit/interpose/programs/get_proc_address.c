// cuGetProcAddress, before cuInit and through itself: the form that name, version and flags mean.
#include "check.h"

int main(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  GetProcFn get = (GetProcFn)dlsym(cuda, "cuGetProcAddress_v2");
  OldGetProcFn old_get = (OldGetProcFn)dlsym(cuda, "cuGetProcAddress");
  LastCallFn last_call = (LastCallFn)dlsym(cuda, "fake_last_call");
  CHECK(IS_WRAPPER(get) && IS_WRAPPER(old_get));

  void* function = NULL;
  int status = -1;
  CHECK(get("cuGetProcAddress", &function, 12000, 0, &status) == 0);
  CHECK(function == (void*)get && status == 0);
  CHECK(get("cuGetProcAddress", &function, 11030, 0, NULL) == 0);
  CHECK(function == (void*)old_get);
  CHECK(old_get("cuInit", &function, 13000, 0) == 0 && function == dlsym(cuda, "cuInit"));
  CHECK(IS_WRAPPER(function));

  CHECK(get("cuMemAlloc", &function, 3010, 0, NULL) == 0 && function == dlsym(cuda, "cuMemAlloc"));
  CHECK(get("cuMemAlloc", &function, 3020, 0, NULL) == 0);
  CHECK(function == dlsym(cuda, "cuMemAlloc_v2"));
  CHECK(get("cuCtxGetDevice", &function, 12090, 0, NULL) == 0);
  CHECK(function == dlsym(cuda, "cuCtxGetDevice"));
  CHECK(get("cuCtxGetDevice", &function, 13020, 0, NULL) == 0);
  CHECK(function == dlsym(cuda, "cuCtxGetDevice_v2"));

  CHECK(get("cuLaunchKernel", &function, 13000, 2, NULL) == 0);
  CHECK(function == dlsym(cuda, "cuLaunchKernel_ptsz") && launch(function) == 0);
  CHECK(strcmp(last_call(), "cuLaunchKernel_ptsz") == 0);
  CHECK(get("cuLaunchKernel", &function, 13000, 1, NULL) == 0);
  CHECK(function == dlsym(cuda, "cuLaunchKernel"));

  CHECK(get("", &function, 0, 0, NULL) == 0 && function == NULL);
  CHECK(get("cuNoSuchFunction", &function, 13000, 0, &status) == 500);
  CHECK(function == NULL && status == 1);
  return 0;
}
