// Another preload: catches cuLaunchKernel and getppid the usual way, and, where OTHER_CATCHES_DLSYM
// is defined, dlsym. Its constructor calls dlsym before ours may have run.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

static int launches;
EXPORT int other_launches(void) { return launches; }

#ifdef OTHER_CATCHES_DLSYM
EXPORT void* dlsym(void* handle, const char* name) {
  static void* (*next)(void*, const char*);
  if (next == NULL) next = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  return next(handle, name);
}
#endif

typedef int (*LaunchFn)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        void*, void**, void**);

EXPORT int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void* stream, void** params, void** extra) {
  ++launches;
  LaunchFn next = (LaunchFn)dlsym(RTLD_NEXT, "cuLaunchKernel");
  return next(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

static int (*next_getppid)(void);
__attribute__((constructor)) static void start(void) {
  next_getppid = (int (*)(void))dlsym(RTLD_NEXT, "getppid");
}

EXPORT int getppid(void) { return next_getppid(); }
