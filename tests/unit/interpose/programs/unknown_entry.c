// A function that the table doesn't know is handed out unchanged, and told; a harmless one isn't
// told.
#include "check.h"

int main(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  GetProcFn get = (GetProcFn)dlsym(cuda, "cuGetProcAddress_v2");
  InfoFn info = (InfoFn)dlsym(cuda, "cuMemGetInfo_v2");
  size_t gated = 0, unknown = 0;
  void* function = NULL;
  CHECK(IS_REAL(dlsym(cuda, "cuGraphGetId")));
  CHECK(get("cuGraphGetId", &function, 13010, 0, NULL) == 0 && IS_REAL(function));
  CHECK(info(&gated, &unknown) == 0 && unknown == 0);
  CHECK(IS_REAL(dlsym(cuda, "cuLaunchWarp")));
  CHECK(info(&gated, &unknown) == 0 && unknown == 1);
  CHECK(get("cuLaunchWarp", &function, 13010, 0, NULL) == 0 && IS_REAL(function));
  CHECK(info(&gated, &unknown) == 0 && unknown == 2);
  return 0;
}
