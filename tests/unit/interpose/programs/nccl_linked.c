// A program linked with NCCL, or with a library that has NCCL inside and exports it: its calls are
// bound to our exports, which find the functions behind them.
#include "check.h"

struct unique_id {
  char internal[128];
};
int ncclCommInitRank(void** comm, int ranks, struct unique_id id, int rank);
int ncclCommRegister(void* comm, void* buffer, size_t bytes, void** handle);
int pncclCommRegister(void* comm, void* buffer, size_t bytes, void** handle);
const char* ncclGetErrorString(int result);
const char* fake_nccl_last_call(void);

int main(void) {
  struct unique_id id = {{0}};
  id.internal[0] = 'a';
  id.internal[127] = 'z';
  void* comm = NULL;
  CHECK(IS_WRAPPER(ncclCommInitRank));
  CHECK(ncclCommInitRank(&comm, 5, id, 3) == 0 && comm == (void*)8);
  CHECK(strcmp(fake_nccl_last_call(), "ncclCommInitRank") == 0);
  CHECK(IS_WRAPPER(ncclCommRegister) && IS_WRAPPER(pncclCommRegister));
  void* handle = NULL;
  CHECK(ncclCommRegister(comm, &id, 4, &handle) == 0 && handle == &id);
  CHECK(pncclCommRegister(comm, &id, 0, &handle) == 4);
  CHECK(strcmp(ncclGetErrorString(0), "no error") == 0);
  CHECK(IS_WRAPPER(dlsym(RTLD_DEFAULT, "ncclCommRegister")));
  CHECK(IS_WRAPPER(dlsym(RTLD_NEXT, "ncclCommRegister")));
  CHECK(dlerror() == NULL);
  CHECK(dlsym(RTLD_DEFAULT, "ncclCommShrink") == NULL);
  CHECK(dlerror() != NULL);
  return 0;
}
