#pragma once

#include <string>

#include "tools/simgpu/nvml/nvml_api.h"
#include "tools/simgpu/nvml/session.h"

namespace plexrl::simgpu::nvml {

/// Writes a string with its end. INSUFFICIENT_SIZE, and nothing written, when it doesn't fit.
nvmlReturn_t answer_text(const std::string& text, char* buffer, unsigned length);

/// The beginning of every function that needs nvmlInit.
#define NVML_ENTER() \
  if (!::plexrl::simgpu::nvml::session().is_initialised()) return NVML_ERROR_UNINITIALIZED

/// As NVML_ENTER, and declares `int device`, of the handle that the caller gave.
#define NVML_ENTER_DEVICE(handle)                               \
  NVML_ENTER();                                                 \
  const auto found = ::plexrl::simgpu::nvml::device_of(handle); \
  if (!found) return NVML_ERROR_INVALID_ARGUMENT;               \
  [[maybe_unused]] const int device = *found

}  // namespace plexrl::simgpu::nvml
