#pragma once

#include "interpose/entry.h"
#include "interpose/nvml_api.h"

namespace plexrl {

/// The real NVML, as `Driver` is the real driver. Errors: NVML_ERROR_FUNCTION_NOT_FOUND where the
/// process has no libnvidia-ml.so* or it lacks the function.
struct Nvml {
#define NVML_API(symbol, cls, params, args) interpose::Entry<decltype(::symbol)> symbol;
#include "interpose/nvml_api.def"
#undef NVML_API
};

extern Nvml nvml;

}  // namespace plexrl
