#pragma once

#include "interpose/entry.h"
#include "interpose/nccl_api.h"

namespace plexrl {

/// The real NCCL, as `Driver` is the real driver: the libnccl.so* of the process, or the library
/// that has NCCL inside and exports it. Errors: ncclSystemError (functions of another type return
/// null) where the process has neither or it lacks the function.
struct Nccl {
#define NCCL_API(symbol, result, cls, params, args) interpose::Entry<decltype(::symbol)> symbol;
#include "interpose/nccl_api.def"
#undef NCCL_API
};

extern Nccl nccl;

}  // namespace plexrl
