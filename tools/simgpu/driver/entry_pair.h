#pragma once

#include "tools/simgpu/driver/cuda_api.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/stream.h"

/// Defines an entry point in its legacy and its per-thread-default-stream form: both call
/// `impl(per_thread, arguments…)`.
#define SIMGPU_PAIR(symbol, suffix, impl, parameters, ...)   \
  SIMGPU_EXPORT CUresult CUDAAPI symbol parameters {         \
    SIMGPU_ENTER(symbol);                                    \
    return impl(false, __VA_ARGS__);                         \
  }                                                          \
  SIMGPU_EXPORT CUresult CUDAAPI symbol##suffix parameters { \
    SIMGPU_ENTER(symbol);                                    \
    return impl(true, __VA_ARGS__);                          \
  }
