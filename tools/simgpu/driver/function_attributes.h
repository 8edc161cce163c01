#pragma once

#include <cstddef>

#include "tools/simgpu/driver/module.h"

/// What cuFunc* and cuKernel* calls share: attributes and parameters of a function.
namespace plexrl::simgpu {

CUresult get_attribute(const Function& function, CUfunction_attribute attribute, int* value);
/// Only MAX_DYNAMIC_SHARED_SIZE_BYTES and PREFERRED_SHARED_MEMORY_CARVEOUT can be set here; there
/// are no clusters.
CUresult set_attribute(Function* function, CUfunction_attribute attribute, int value);
/// `bytes` may be null. INVALID_VALUE when the function has no such parameter.
CUresult parameter_info(const Function& function, std::size_t index, std::size_t* offset,
                        std::size_t* bytes);

}  // namespace plexrl::simgpu
