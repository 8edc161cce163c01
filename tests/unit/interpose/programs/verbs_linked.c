// A program linked with -libverbs: its calls are bound to our exports whatever version it names.
#include <stdint.h>

#include "check.h"

void* ibv_reg_mr(void*, void*, size_t, int);
void* ibv_reg_mr_iova2(void*, void*, size_t, uint64_t, unsigned);
int ibv_dereg_mr(void*);

int main(void) {
  CHECK(IS_WRAPPER(ibv_reg_mr) && ibv_reg_mr(NULL, NULL, 1, 0) == (void*)11);
  CHECK(IS_WRAPPER(ibv_reg_mr_iova2) && ibv_reg_mr_iova2(NULL, NULL, 1, 0, 0) == (void*)18);
  CHECK(IS_WRAPPER(ibv_dereg_mr) && ibv_dereg_mr(NULL) == 22);
  CHECK(IS_WRAPPER(dlvsym(RTLD_DEFAULT, "ibv_reg_mr", "IBVERBS_1.1")));
  CHECK(dlerror() == NULL);
  CHECK(dlsym(RTLD_DEFAULT, "ibv_rereg_mr") == NULL);
  CHECK(dlerror() != NULL);
  return 0;
}
