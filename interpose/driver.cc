#include "interpose/driver.h"

#include <cerrno>
#include <type_traits>

#include "interpose/nvml.h"
#include "interpose/real_dl.h"

namespace plexrl {
namespace interpose {

void* real_driver_function(Api api) noexcept {
  const int saved_errno = errno;
  void* const function = libcuda.pinned().symbol(name(api));
  errno = saved_errno;
  return function;
}

namespace {

void* real_nvml_function(const char* symbol) noexcept {
  const int saved_errno = errno;
  void* const function = libnvml.pinned().symbol(symbol);
  errno = saved_errno;
  return function;
}

// The first call of each entry: find the function, keep it, call it.
#define API(symbol, since, cls, detail, params, args)                              \
  static_assert(std::is_same_v<CUresult(CUDAAPI*) params, decltype(&::symbol)>,    \
                "driver_api.def and cuda.h differ in the parameters of " #symbol); \
  [[gnu::cold]] CUresult CUDAAPI first_##symbol params {                           \
    void* const real = real_driver_function(Api::symbol);                          \
    if (real == nullptr) return CUDA_ERROR_NOT_SUPPORTED;                          \
    driver.symbol = reinterpret_cast<decltype(&::symbol)>(real);                   \
    return driver.symbol args;                                                     \
  }
#include "interpose/driver_api.def"
#undef API

#define NVML_API(symbol, cls, params, args)                    \
  [[gnu::cold]] nvmlReturn_t first_##symbol params {           \
    void* const real = real_nvml_function(#symbol);            \
    if (real == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND; \
    nvml.symbol = reinterpret_cast<decltype(&::symbol)>(real); \
    return nvml.symbol args;                                   \
  }
#include "interpose/nvml_api.def"
#undef NVML_API

}  // namespace
}  // namespace interpose

constinit Driver driver = {
#define API(symbol, since, cls, detail, params, args) &interpose::first_##symbol,
#include "interpose/driver_api.def"
#undef API
};

constinit Nvml nvml = {
#define NVML_API(symbol, cls, params, args) &interpose::first_##symbol,
#include "interpose/nvml_api.def"
#undef NVML_API
};

}  // namespace plexrl
