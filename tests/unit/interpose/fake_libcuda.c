// A driver of a few functions, built as libcuda.so.1. Each notes its own name for fake_last_call,
// so that a program can see which one was reached. It lacks cuMemAllocPitch_v2, and has
// cuLaunchWarp, which no cuda.h knows.

#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define DEFINE(name, ...)        \
  EXPORT int name(__VA_ARGS__) { \
    last_call = #name;           \
    return 0;                    \
  }

static const char* last_call = "";
EXPORT const char* fake_last_call(void) { return last_call; }

DEFINE(cuInit, unsigned flags)
DEFINE(cuMemAlloc, unsigned* pointer, unsigned bytes)
DEFINE(cuMemAlloc_v2, unsigned long long* pointer, size_t bytes)
DEFINE(cuMemFree_v2, unsigned long long pointer)
DEFINE(cuCtxGetDevice, int* device)
DEFINE(cuCtxGetDevice_v2, int* device, void* context)
DEFINE(cuStreamQuery, void* stream)
DEFINE(cuStreamQuery_ptsz, void* stream)
DEFINE(cuLaunchKernel, void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
       unsigned bz, unsigned shared, void* stream, void** params, void** extra)
DEFINE(cuLaunchKernel_ptsz, void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
       unsigned by, unsigned bz, unsigned shared, void* stream, void** params, void** extra)
DEFINE(cuLaunchWeft, void)
DEFINE(cuGraphGetId, void* graph, unsigned* id)

// A private table of the driver's, as cuGetExportTable gives them.
static int inner_function(void) { return 42; }
static void* const export_table[] = {(void*)sizeof(void* [2]), (void*)inner_function};
EXPORT const void* fake_export_table(void) { return export_table; }
EXPORT int cuGetExportTable(const void** table, const void* id) {
  last_call = "cuGetExportTable";
  *table = export_table;
  return 0;
}

EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = 1000;
  *total = 2000;
  return 0;
}

EXPORT int cuDriverGetVersion(int* version) {
  *version = 13020;
  return 0;
}

EXPORT double cuLaunchWarp(int a, double b, long c, long d, long e, long f, float g, long h, long i,
                           const char* text) {
  last_call = "cuLaunchWarp";
  return a + b + c + d + e + f + g + h + i + strlen(text);
}

// A second cuMemFree_v2: real drivers promise nowhere that both lookups give the same address.
static int inner_mem_free(unsigned long long pointer) {
  last_call = "inner_mem_free";
  return 0;
}

EXPORT int cuGetProcAddress(const char* symbol, void** function, int version,
                            unsigned long long flags);
EXPORT int cuGetProcAddress_v2(const char* symbol, void** function, int version,
                               unsigned long long flags, int* status);

static const struct {
  const char* name;
  int since;
  int per_thread;
  void* function;
} forms[] = {
    // newest form first
    {"cuGetProcAddress", 12000, 0, (void*)cuGetProcAddress_v2},
    {"cuGetProcAddress", 11030, 0, (void*)cuGetProcAddress},
    {"cuInit", 2000, 0, (void*)cuInit},
    {"cuGetExportTable", 3000, 0, (void*)cuGetExportTable},
    {"cuMemAlloc", 3020, 0, (void*)cuMemAlloc_v2},
    {"cuMemAlloc", 2000, 0, (void*)cuMemAlloc},
    {"cuMemFree", 3020, 0, (void*)inner_mem_free},
    {"cuCtxGetDevice", 13000, 0, (void*)cuCtxGetDevice_v2},
    {"cuCtxGetDevice", 2000, 0, (void*)cuCtxGetDevice},
    {"cuLaunchKernel", 7000, 1, (void*)cuLaunchKernel_ptsz},
    {"cuLaunchKernel", 4000, 0, (void*)cuLaunchKernel},
    {"cuLaunchWarp", 13010, 0, (void*)cuLaunchWarp},
    {"cuGraphGetId", 13010, 0, (void*)cuGraphGetId},
};

int cuGetProcAddress_v2(const char* symbol, void** function, int version, unsigned long long flags,
                        int* status) {
  if (symbol[0] == '\0') {
    *function = NULL;
    return 0;
  }
  for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); ++i) {
    if (strcmp(forms[i].name, symbol) != 0 || version < forms[i].since) continue;
    if (forms[i].per_thread && (flags & 2) == 0) continue;
    *function = forms[i].function;
    if (status != NULL) *status = 0;
    return 0;
  }
  *function = NULL;
  if (status != NULL) *status = 1;
  return 500;
}

int cuGetProcAddress(const char* symbol, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
