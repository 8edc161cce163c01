// libibverbs as NCCL opens it: by version. The forms that are meant today are caught, those of
// libibverbs 1.0 are not.
#include <stdint.h>

#include "check.h"

typedef void* (*RegFn)(void*, void*, size_t, int);
typedef void* (*RegIovaFn)(void*, void*, size_t, uint64_t, unsigned);

int main(void) {
  void* verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(verbs != NULL);
  RegFn reg = (RegFn)dlvsym(verbs, "ibv_reg_mr", "IBVERBS_1.1");
  CHECK(IS_WRAPPER(reg) && reg(NULL, verbs, 4096, 0) == (void*)11);
  CHECK(dlsym(verbs, "ibv_reg_mr") == (void*)reg);
  RegFn old = (RegFn)dlvsym(verbs, "ibv_reg_mr", "IBVERBS_1.0");
  CHECK(strncmp(home_of((void*)old), "libibverbs.so", 13) == 0);
  CHECK(old(NULL, verbs, 4096, 0) == (void*)10);
  RegIovaFn iova = (RegIovaFn)dlvsym(verbs, "ibv_reg_mr_iova2", "IBVERBS_1.8");
  CHECK(IS_WRAPPER(iova) && iova(NULL, verbs, 4096, 0, 0) == (void*)18);
  int (*dereg)(void*) = (int (*)(void*))dlvsym(verbs, "ibv_dereg_mr", "IBVERBS_1.1");
  CHECK(IS_WRAPPER(dereg) && dereg(verbs) == 0 && dereg(NULL) == 22);
  void* dmabuf = dlvsym(verbs, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
  CHECK(strncmp(home_of(dmabuf), "libibverbs.so", 13) == 0);
  CHECK(dlerror() == NULL);
  CHECK(dlvsym(verbs, "ibv_reg_mr", "IBVERBS_9.9") == NULL);
  CHECK(dlerror() != NULL);
  CHECK(dlsym(verbs, "ibv_rereg_mr") == NULL);
  CHECK(dlerror() != NULL);
  return 0;
}
