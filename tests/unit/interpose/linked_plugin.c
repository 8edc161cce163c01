// A library linked with -lcuda, as extension modules of Python are.
#include <stddef.h>

int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**);

__attribute__((visibility("default"))) int plugin_launch(void) {
  return cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}
