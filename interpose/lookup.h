#pragma once

#include <array>

#include "interpose/api.h"
#include "interpose/nccl_api.h"
#include "interpose/nvml_api.h"
#include "interpose/verbs_api.h"

/// Who asks for a function gets the wrapper: dlsym and dlvsym (exported by dlsym_x86_64.S),
/// cuGetProcAddress in both forms.
///
/// Rules: the real resolver is asked first and its failures are passed on; a wrapper is handed out
/// only for a function that lies in the process's libcuda.so* (or libnvidia-ml.so*, libnccl.so*,
/// libibverbs.so*) and that the table knows. A driver function that it doesn't know is handed out
/// behind a stand-in that makes the process exclusive at its first call (unknown_entry.h), unless
/// harmless.def lists it. All else is handed out unchanged.

namespace plexrl::interpose {

// Class lookup of driver_api.def.
CUresult cuDriverGetVersion(int* driverVersion) noexcept;
CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion,
                          cuuint64_t flags) noexcept;
CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) noexcept;

// Functions beside the driver's, in the order of their tables; of NCCL each by its two names.
enum class OtherApi : uint16_t {
#define NVML_API(symbol, cls, params, args) symbol,
#include "interpose/nvml_api.def"
#undef NVML_API
#define NCCL_API(symbol, result, cls, params, args) symbol, p##symbol,
#include "interpose/nccl_api.def"
#undef NCCL_API
#define VERBS_API(symbol, result, cls, params, args) symbol,
#include "interpose/verbs_api.def"
#undef VERBS_API
  kCount,
};
inline constexpr size_t kOtherCount = static_cast<size_t>(OtherApi::kCount);

/// The exported wrappers by row (wrappers.inc); null for rows that are not caught.
extern const std::array<void*, kApiCount> kDriverWrappers;
extern const std::array<void*, kOtherCount> kOtherWrappers;

}  // namespace plexrl::interpose
