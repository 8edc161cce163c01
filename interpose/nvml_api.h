#pragma once

#include <cstdint>

/// The little of NVML that PlexRL needs, declared by hand because CUDA's toolkit need not bring
/// nvml.h. Names, layouts and codes as in NVIDIA's NVML API Reference; layouts never change under a
/// name there.

extern "C" {

using nvmlDevice_t = struct nvmlDevice_st*;

/// NVML's codes. Only those that PlexRL returns or looks at are named.
enum nvmlReturn_t : int {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

/// Bytes.
struct nvmlMemory_t {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

/// Bytes. The caller sets `version` to sizeof | 2 << 24.
struct nvmlMemory_v2_t {
  unsigned int version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};

struct nvmlProcessInfo_v1_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
};

struct nvmlProcessInfo_v2_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId;
  unsigned int computeInstanceId;
};

using nvmlProcessInfo_t = nvmlProcessInfo_v2_t;

static_assert(sizeof(nvmlMemory_t) == 24 && sizeof(nvmlMemory_v2_t) == 40);
static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_v2_t) == 24);

#define NVML_API(symbol, cls, params, args) nvmlReturn_t symbol params;
#include "interpose/nvml_api.def"
#undef NVML_API

}  // extern "C"
