// NCCL of a few functions: built as libnccl.so.2, and as a library of another name that has it
// inside.
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct unique_id {
  char internal[128];
};

static const char* last = "";
EXPORT const char* fake_nccl_last_call(void) { return last; }

EXPORT int pncclGetVersion(int* version) {
  last = "ncclGetVersion";
  *version = 22809;
  return 0;
}
EXPORT int ncclGetVersion(int*) __attribute__((weak, alias("pncclGetVersion")));

// By value: 128 bytes on the stack.
EXPORT int ncclCommInitRank(void** comm, int ranks, struct unique_id id, int rank) {
  last = "ncclCommInitRank";
  *comm = (void*)(size_t)(ranks + rank);
  return id.internal[0] == 'a' && id.internal[127] == 'z' ? 0 : 4;
}

EXPORT int pncclCommRegister(void* comm, void* buffer, size_t bytes, void** handle) {
  last = "ncclCommRegister";
  *handle = buffer;
  return comm != NULL && bytes != 0 ? 0 : 4;
}
EXPORT int ncclCommRegister(void*, void*, size_t, void**)
    __attribute__((weak, alias("pncclCommRegister")));

EXPORT const char* ncclGetErrorString(int result) { return result == 0 ? "no error" : "an error"; }

EXPORT int ncclNotYetInTheTable(void) {
  last = "ncclNotYetInTheTable";
  return 0;
}
