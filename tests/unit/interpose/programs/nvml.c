// NVML: the calls that must agree with PlexRL are caught, the others are not.
#include "check.h"

struct memory {
  unsigned long long total, free, used;
};

int main(void) {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  void* info = dlsym(nvml, "nvmlDeviceGetMemoryInfo");
  CHECK(IS_WRAPPER(info));
  struct memory memory = {0};
  CHECK(((int (*)(void*, struct memory*))info)(&memory, &memory) == 0 && memory.total == 42);
  CHECK(strcmp(home_of(dlsym(nvml, "nvmlDeviceGetIndex")), "libnvidia-ml.so.1") == 0);
  CHECK(dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2") == NULL);
  CHECK(dlerror() != NULL);
  return 0;
}
