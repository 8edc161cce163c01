#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

/// Ends a benchmark program with the name of the call and of the error. A benchmark has no other
/// use for errors.
#define CHECK_CU(call)                                                              \
  do {                                                                              \
    const CUresult check_result = (call);                                           \
    if (check_result != CUDA_SUCCESS) {                                             \
      const char* check_name = nullptr;                                             \
      cuGetErrorName(check_result, &check_name);                                    \
      std::fprintf(stderr, "%s: %s\n", #call, check_name ? check_name : "unknown"); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)
