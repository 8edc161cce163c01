#pragma once

/// The part of NVIDIA's NVML that the simulated library declares with its arguments, written from
/// the "NVML API Reference Guide": layouts, values and buffer sizes are those of its 13.0 edition.

#include <cstddef>

extern "C" {

using nvmlDevice_t = struct nvmlDevice_st*;

enum nvmlReturn_t : int {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_ALREADY_INITIALIZED = 5,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999,
};

struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned domain, bus, device;
  unsigned pciDeviceId, pciSubSystemId;
  char busId[32];
};
/// What nvmlDeviceGetPciInfo, the first form, writes.
struct nvmlPciInfo_v1_t {
  char busId[16];
  unsigned domain, bus, device;
  unsigned pciDeviceId;
};
struct nvmlMemory_t {
  unsigned long long total, free, used;
};
struct nvmlMemory_v2_t {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct nvmlBAR1Memory_t {
  unsigned long long bar1Total, bar1Free, bar1Used;
};
struct nvmlUtilization_t {
  unsigned gpu, memory;  ///< percent of the last sample period
};
struct nvmlProcessInfo_v1_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
};
struct nvmlProcessInfo_v2_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;  ///< all ones without MIG
};
struct nvmlProcessDetail_v1_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
  unsigned long long usedGpuCcProtectedMemory;
};
struct nvmlProcessDetailList_v1_t {
  unsigned version, mode, numProcArrayEntries;
  nvmlProcessDetail_v1_t* procArray;
};

}  // extern "C"

static_assert(sizeof(nvmlPciInfo_t) == 68 && offsetof(nvmlPciInfo_t, busId) == 36);
static_assert(sizeof(nvmlMemory_v2_t) == 40 && sizeof(nvmlProcessInfo_v1_t) == 16);
static_assert(sizeof(nvmlProcessInfo_v2_t) == 24 && sizeof(nvmlProcessDetail_v1_t) == 32);

/// The version word of a structure: its size and its number.
inline constexpr unsigned nvml_struct_version(std::size_t bytes, unsigned version) {
  return static_cast<unsigned>(bytes) | version << 24;
}

#define NVML_EXPORT extern "C" __attribute__((visibility("default")))
