#pragma once

#include "tools/simgpu/nccl/nccl_api.h"

/// An exported function under both of its names: `SIMGPU_NCCL(ncclResult_t, CommCount, (…), (…)) {
/// body }` defines ncclCommCount and pncclCommCount.
#define SIMGPU_NCCL(result, name, parameters, arguments)                            \
  static result body_##name parameters;                                             \
  extern "C" __attribute__((visibility("default"))) result nccl##name parameters {  \
    return body_##name arguments;                                                   \
  }                                                                                 \
  extern "C" __attribute__((visibility("default"))) result pnccl##name parameters { \
    return body_##name arguments;                                                   \
  }                                                                                 \
  static result body_##name parameters
