// A function that the table doesn't know is told at its first call and reached with its arguments
// as they were; a harmless one is handed out unchanged.
#include "check.h"

typedef double (*WarpFn)(int, double, long, long, long, long, float, long, long, const char*);

static void check_call(WarpFn warp) {
  CHECK(warp(1, 2.5, 3, 4, 5, 6, 7.5f, 8, 9, "ten") == 1 + 2.5 + 3 + 4 + 5 + 6 + 7.5 + 8 + 9 + 3);
}

int main(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  GetProcFn get = (GetProcFn)dlsym(cuda, "cuGetProcAddress_v2");
  InfoFn info = (InfoFn)dlsym(cuda, "cuMemGetInfo_v2");
  size_t gated = 0, unknown = 0;
  void* function = NULL;
  CHECK(IS_REAL(dlsym(cuda, "cuGraphGetId")));
  CHECK(get("cuGraphGetId", &function, 13010, 0, NULL) == 0 && IS_REAL(function));

  char name[] = "cuLaunchWarp";
  void* warp = dlsym(cuda, name);
  memset(name, 'x', sizeof(name) - 1);
  CHECK(warp != NULL && warp == dlsym(cuda, "cuLaunchWarp"));
  CHECK(get("cuLaunchWarp", &function, 13010, 0, NULL) == 0 && function == warp);
  CHECK(dlsym(cuda, "cuLaunchWeft") != NULL && dlsym(cuda, "cuLaunchWeft") != warp);
  CHECK(info(&gated, &unknown) == 0 && unknown == 0);
  check_call((WarpFn)warp);
  CHECK(info(&gated, &unknown) == 0 && unknown == 1);
  check_call((WarpFn)warp);
  CHECK(info(&gated, &unknown) == 0 && unknown == 1);
  CHECK(((int (*)(void))dlsym(cuda, "cuLaunchWeft"))() == 0);
  CHECK(info(&gated, &unknown) == 0 && unknown == 2);
  return 0;
}
