#pragma once

#include <array>

#include "interpose/api.h"
#include "interpose/nvml_api.h"

/// Who asks for a function gets the wrapper: dlsym and dlvsym (exported by dlsym_x86_64.S),
/// cuGetProcAddress in both forms.
///
/// Rules: the real resolver is asked first and its failures are passed on; a wrapper is handed out
/// only for a function that lies in the process's libcuda.so* (or libnvidia-ml.so*) and that the
/// table knows. A driver function that it doesn't know is handed out behind a stand-in that makes
/// the process exclusive at its first call (unknown_entry.h), unless harmless.def lists it. All
/// else is handed out unchanged.

namespace plexrl::interpose {

// Class lookup of driver_api.def.
CUresult cuDriverGetVersion(int* driverVersion) noexcept;
CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                          cuuint64_t flags) noexcept;
CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) noexcept;

enum class NvmlApi : uint8_t {
#define NVML_API(symbol, cls, params, args) symbol,
#include "interpose/nvml_api.def"
#undef NVML_API
  kCount,
};
inline constexpr size_t kNvmlCount = static_cast<size_t>(NvmlApi::kCount);

/// The exported wrappers by row (wrappers.inc); null for NVML's rows that are not caught.
extern const std::array<void*, kApiCount> kDriverWrappers;
extern const std::array<void*, kNvmlCount> kNvmlWrappers;

}  // namespace plexrl::interpose
