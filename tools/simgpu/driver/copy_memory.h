#pragma once

#include "tools/simgpu/driver/cuda_api.h"
#include "tools/simgpu/driver/operation.h"

namespace plexrl::simgpu {

/// (Defined in entry_copy.cc.) A copy in stream order, with the calling thread's context. Sets the
/// shape's devices. `blocks`: returns when it has ended; else it does so only for large pageable
/// memory ("API synchronization behavior"). Errors: INVALID_VALUE for memory that nobody knows, and
/// what the stream answers.
CUresult copy_memory(bool per_thread, CopyShape shape, CUstream stream, bool blocks);

}  // namespace plexrl::simgpu
