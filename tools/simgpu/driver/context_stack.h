#pragma once

#include <vector>

#include "tools/simgpu/driver/context.h"

namespace plexrl::simgpu {

/// The calling thread's stack of contexts; the last one is current.
std::vector<Context*>& context_stack();

/// Makes a context on a visible device. Takes driver time and device memory. Errors:
/// CUDA_ERROR_OUT_OF_MEMORY.
CUresult make_context(int ordinal, unsigned flags, Context** made);

/// Waits for the context's work, frees its memory, and makes its handle stale.
void destroy_context(Context* context);

}  // namespace plexrl::simgpu
