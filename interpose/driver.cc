#include "interpose/driver.h"

#include <cerrno>
#include <type_traits>

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

}  // namespace
}  // namespace interpose

constinit Driver driver = {
#define API(symbol, since, cls, detail, params, args) &interpose::first_##symbol,
#include "interpose/driver_api.def"
#undef API
};

}  // namespace plexrl
