// NCCL as frameworks open it: both names of a function are caught, and what it lacks is not there.
#include "check.h"

typedef int (*RegisterFn)(void*, void*, size_t, void**);

int main(void) {
  void* nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  CHECK(nccl != NULL);
  const char* (*last)(void) = (const char* (*)(void))dlsym(nccl, "fake_nccl_last_call");
  RegisterFn both[] = {(RegisterFn)dlsym(nccl, "ncclCommRegister"),
                       (RegisterFn)dlsym(nccl, "pncclCommRegister")};
  for (int i = 0; i < 2; ++i) {
    CHECK(IS_WRAPPER(both[i]));
    int version = 0;
    int (*get)(int*) = (int (*)(int*))dlsym(nccl, i == 0 ? "ncclGetVersion" : "pncclGetVersion");
    CHECK(IS_WRAPPER(get));
    CHECK(get(&version) == 0 && version == 22809 && strcmp(last(), "ncclGetVersion") == 0);
    void* handle = NULL;
    CHECK(both[i](nccl, &version, sizeof version, &handle) == 0 && handle == &version);
    CHECK(strcmp(last(), "ncclCommRegister") == 0);
  }
  CHECK(strncmp(home_of(dlsym(nccl, "ncclNotYetInTheTable")), "libnccl.so", 10) == 0);
  CHECK(dlerror() == NULL);
  CHECK(dlsym(nccl, "ncclCommShrink") == NULL);
  CHECK(dlerror() != NULL);
  CHECK(dlsym(RTLD_DEFAULT, "pncclCommShrink") == NULL);
  CHECK(dlerror() != NULL);
  return 0;
}
