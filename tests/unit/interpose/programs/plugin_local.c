// An extension module that is linked with -lcuda and loaded RTLD_LOCAL: its calls are bound to our
// exports.
#include "check.h"

int main(void) {
  void* plugin = dlopen("liblinked_plugin.so", RTLD_NOW | RTLD_LOCAL);
  CHECK(plugin != NULL);
  CHECK(((int (*)(void))dlsym(plugin, "plugin_launch"))() == 0);
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  size_t gated = 0, unknown = 0;
  CHECK(((InfoFn)dlsym(cuda, "cuMemGetInfo_v2"))(&gated, &unknown) == 0 && gated == 1);
  return 0;
}
