#pragma once

#include "tools/simgpu/driver/cuda_api.h"
#include "tools/simgpu/driver/operation.h"

namespace plexrl::simgpu {

/// What the parameters of a 3D copy mean, but for the devices. INVALID_VALUE for a missing address,
/// a pitch below the width or what lies outside of an array, INVALID_HANDLE for no array.
CUresult shape_of(const CUDA_MEMCPY3D& parameters, CopyShape* shape);
CUresult shape_of(const CUDA_MEMCPY3D_PEER& parameters, CopyShape* shape);
/// As cuMemcpy3D reads them: sets the devices of both addresses, as seen from `context`.
void set_devices(const Context* context, CopyShape* shape);
/// Parameters that mean this shape.
CUDA_MEMCPY3D parameters_of(const CopyShape& shape);

}  // namespace plexrl::simgpu
