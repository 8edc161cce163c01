// A driver whose cuGetProcAddress gives another address than its export: the version decides, but
// only for versions that the table covers.
#include "check.h"

int main(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  GetProcFn get = (GetProcFn)dlsym(cuda, "cuGetProcAddress_v2");
  InfoFn info = (InfoFn)dlsym(cuda, "cuMemGetInfo_v2");
  size_t gated = 0, unknown = 0;
  void* function = NULL;
  CHECK(get("cuMemFree", &function, 13000, 0, NULL) == 0);
  CHECK(function == dlsym(cuda, "cuMemFree_v2") && IS_WRAPPER(function));
  CHECK(info(&gated, &unknown) == 0 && unknown == 0);
  CHECK(get("cuMemFree", &function, 99000, 0, NULL) == 0);
  CHECK(function != dlsym(cuda, "cuMemFree_v2"));
  CHECK(((int (*)(unsigned long long))function)(0) == 0);
  CHECK(info(&gated, &unknown) == 0 && unknown == 1);
  return 0;
}
