#pragma once

#include "interpose/api.h"
#include "interpose/entry.h"

namespace plexrl {

/// The real driver: one callable member for each row of driver_api.def.
///
///   CUresult r = plexrl::driver.cuMemMap(ptr, bytes, 0, handle, 0);
///
/// Inside the shim every call of the driver goes through here; a bare cuMemMap would be the
/// exported wrapper. Each member finds its function at its first call, in the libcuda.so* that the
/// process has loaded (the first one where there are several), and keeps that library loaded from
/// then on.
///
/// Threads: any, after fork too. Errors: CUDA_ERROR_NOT_SUPPORTED where the process has no libcuda
/// or it lacks the function; all else is the driver's own answer. The first call of a member may
/// take the loader's lock; later ones take none.
struct Driver {
#define API(symbol, since, cls, detail, params, args) interpose::Entry<decltype(::symbol)> symbol;
#include "interpose/driver_api.def"
#undef API
};

extern Driver driver;

namespace interpose {

/// The address of the real function, or null where the process has no libcuda or it lacks the
/// function. Takes no entry's word: asks the loaded library.
void* real_driver_function(Api api) noexcept;

}  // namespace interpose
}  // namespace plexrl
