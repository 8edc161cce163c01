// Without a libcuda in the process nobody finds our exports, and dlsym is itself for everything
// else.
#include "check.h"

static int is_missing(void* handle, const char* name) {
  dlerror();
  void* function = dlsym(handle, name);
  return function == NULL && dlerror() != NULL;
}

int main(void) {
  CHECK(is_missing(RTLD_DEFAULT, "cuInit"));
  CHECK(is_missing(RTLD_NEXT, "cuInit"));
  CHECK(is_missing(dlopen(NULL, RTLD_NOW), "cuInit"));
  CHECK(is_missing(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"));
  CHECK(is_missing(RTLD_DEFAULT, "cuNoSuchFunction"));
  CHECK(is_missing(RTLD_DEFAULT, "no_such_function"));
  CHECK(dlsym(RTLD_DEFAULT, "getppid") == (void*)dlsym(RTLD_NEXT, "getppid"));
  CHECK(dlvsym(RTLD_DEFAULT, "getppid", "GLIBC_2.2.5") != NULL);
  CHECK(dlvsym(RTLD_DEFAULT, "getppid", "GLIBC_0.0") == NULL);
  CHECK(dlvsym(RTLD_DEFAULT, "cuInit", "GLIBC_2.2.5") == NULL);
  return 0;
}
