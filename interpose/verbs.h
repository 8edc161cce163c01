#pragma once

#include "interpose/entry.h"
#include "interpose/verbs_api.h"

namespace plexrl {

/// The real libibverbs, as `Driver` is the real driver. Errors: null or ENOSYS, with errno ENOSYS,
/// where the process has none or it lacks the function.
struct Verbs {
#define VERBS_API(symbol, result, cls, params, args) interpose::Entry<decltype(::symbol)> symbol;
#include "interpose/verbs_api.def"
#undef VERBS_API
};

extern Verbs verbs;

}  // namespace plexrl
