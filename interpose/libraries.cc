#include <cerrno>
#include <type_traits>

#include "interpose/nccl.h"
#include "interpose/nvml.h"
#include "interpose/real_dl.h"
#include "interpose/verbs.h"

/// The real functions of the libraries beside the driver. The first call of each entry finds the
/// function, keeps it and calls it.

namespace plexrl {
namespace interpose {
namespace {

void* real_function(RealLibrary& library, const char* symbol) noexcept {
  const int saved_errno = errno;
  void* const function = library.pinned().symbol(symbol);
  errno = saved_errno;
  return function;
}

/// What a function of a library that isn't there returns.
template <typename Result>
Result nccl_absent() noexcept {
  if constexpr (std::is_same_v<Result, ncclResult_t>) return ncclSystemError;
  return Result();
}
template <typename Result>
Result verbs_absent() noexcept {
  errno = ENOSYS;
  if constexpr (std::is_same_v<Result, int>) return ENOSYS;
  return Result();
}

#define PLEXRL_FIRST_CALL(table, library, symbol, result, params, args, absent) \
  [[gnu::cold]] result first_##symbol params {                                  \
    void* const real = real_function(library, #symbol);                         \
    if (real == nullptr) return absent;                                         \
    table.symbol = reinterpret_cast<decltype(&::symbol)>(real);                 \
    return table.symbol args;                                                   \
  }

#define NVML_API(symbol, cls, params, args)                            \
  PLEXRL_FIRST_CALL(nvml, libnvml, symbol, nvmlReturn_t, params, args, \
                    NVML_ERROR_FUNCTION_NOT_FOUND)
#include "interpose/nvml_api.def"
#undef NVML_API

#define NCCL_API(symbol, result, cls, params, args) \
  PLEXRL_FIRST_CALL(nccl, libnccl, symbol, result, params, args, nccl_absent<result>())
#include "interpose/nccl_api.def"
#undef NCCL_API

#define VERBS_API(symbol, result, cls, params, args) \
  PLEXRL_FIRST_CALL(verbs, libverbs, symbol, result, params, args, verbs_absent<result>())
#include "interpose/verbs_api.def"
#undef VERBS_API

}  // namespace
}  // namespace interpose

constinit Nvml nvml = {
#define NVML_API(symbol, cls, params, args) &interpose::first_##symbol,
#include "interpose/nvml_api.def"
#undef NVML_API
};

constinit Nccl nccl = {
#define NCCL_API(symbol, result, cls, params, args) &interpose::first_##symbol,
#include "interpose/nccl_api.def"
#undef NCCL_API
};

constinit Verbs verbs = {
#define VERBS_API(symbol, result, cls, params, args) &interpose::first_##symbol,
#include "interpose/verbs_api.def"
#undef VERBS_API
};

}  // namespace plexrl
