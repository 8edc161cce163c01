#pragma once

// What the programs here share: a check that ends the program, and where a function lies.

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

// The file name of the object that holds this function.
static inline const char* home_of(void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0) return "";
  const char* slash = strrchr(info.dli_fname, '/');
  return slash != NULL ? slash + 1 : info.dli_fname;
}

#define IS_WRAPPER(function) \
  (strcmp(home_of((void*)(function)), "interpose_counting_preload.so") == 0)
#define IS_REAL(function) (strncmp(home_of((void*)(function)), "libcuda.so", 10) == 0)

typedef int (*LaunchFn)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        void*, void**, void**);
typedef int (*InfoFn)(size_t*, size_t*);
typedef const char* (*LastCallFn)(void);
typedef int (*GetProcFn)(const char*, void**, int, unsigned long long, int*);
typedef int (*OldGetProcFn)(const char*, void**, int, unsigned long long);

static inline int launch(void* function) {
  return ((LaunchFn)function)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}
