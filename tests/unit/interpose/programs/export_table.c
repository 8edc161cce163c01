// cuGetExportTable, however it was found: the driver's private tables come as they are.
#include "check.h"

typedef int (*GetTableFn)(const void**, const void*);
typedef const void* (*RealTableFn)(void);

int main(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const void* real = ((RealTableFn)dlsym(cuda, "fake_export_table"))();
  const unsigned char id[16] = {1, 2, 3};
  const void* table = NULL;
  CHECK(((GetTableFn)dlsym(cuda, "cuGetExportTable"))(&table, id) == 0);
  CHECK(table == real);
  CHECK(IS_REAL(((void* const*)table)[1]));
  CHECK(((int (*)(void))((void* const*)table)[1])() == 42);

  void* function = NULL;
  GetProcFn get = (GetProcFn)dlsym(cuda, "cuGetProcAddress_v2");
  CHECK(get("cuGetExportTable", &function, 12000, 0, NULL) == 0);
  table = NULL;
  CHECK(((GetTableFn)function)(&table, id) == 0 && table == real);
  return 0;
}
