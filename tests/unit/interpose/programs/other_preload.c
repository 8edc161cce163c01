// Another preload before or behind us, a program linked with -lcuda: every launch passes our gate
// once, and nobody's RTLD_NEXT finds itself.
#include <unistd.h>

#include "check.h"

int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**);
int cuMemGetInfo_v2(size_t*, size_t*);
const char* fake_last_call(void);

int main(int argc, char** argv) {
  CHECK(argc == 2);
  const int is_other_first = strcmp(argv[1], "other-first") == 0;
  size_t gated = 0, unknown = 0;
  CHECK(launch((void*)cuLaunchKernel) == 0);
  CHECK(cuMemGetInfo_v2(&gated, &unknown) == 0 && gated == 1);
  CHECK(strcmp(fake_last_call(), "cuLaunchKernel") == 0);
  int (*other_launches)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "other_launches");
  CHECK(other_launches() == is_other_first);
  CHECK(getppid() > 0);

  // Who asks for the other preload's function by name reaches the gate through it.
  void* other = dlopen("libother_preload.so", RTLD_NOW | RTLD_NOLOAD);
  CHECK(other != NULL && launch(dlsym(other, "cuLaunchKernel")) == 0);
  CHECK(cuMemGetInfo_v2(&gated, &unknown) == 0 && gated == 2);
  return 0;
}
