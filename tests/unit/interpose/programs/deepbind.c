// RTLD_DEEPBIND: what is looked up by dlsym is caught. What is linked with -lcuda and opened so is
// bound to the driver itself, past every preload: not caught, and nothing breaks.
#include "check.h"

int main(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  void* launch_kernel = dlsym(cuda, "cuLaunchKernel");
  CHECK(IS_WRAPPER(launch_kernel) && launch(launch_kernel) == 0);
  InfoFn info = (InfoFn)dlsym(cuda, "cuMemGetInfo_v2");
  size_t gated = 0, unknown = 0;
  CHECK(info(&gated, &unknown) == 0 && gated == 1);

  void* plugin = dlopen("liblinked_plugin.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  CHECK(plugin != NULL);
  CHECK(((int (*)(void))dlsym(plugin, "plugin_launch"))() == 0);
  CHECK(info(&gated, &unknown) == 0 && gated == 1);
  LastCallFn last_call = (LastCallFn)dlsym(cuda, "fake_last_call");
  CHECK(strcmp(last_call(), "cuLaunchKernel") == 0);
  return 0;
}
