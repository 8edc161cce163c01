#pragma once

#include <vector>

#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {

/// The machine's device of each ordinal, by CUDA_VISIBLE_DEVICES (nullptr: all): indices or UUIDs
/// (or their unique beginnings), up to the first that does not exist ("CUDA Environment Variables",
/// CUDA C++ programming guide).
std::vector<int> visible_devices(const Machine& machine, const char* variable);

}  // namespace plexrl::simgpu
