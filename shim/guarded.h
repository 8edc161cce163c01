#pragma once

#include "interpose/cuda_api.h"

namespace plexrl::shim {

/// Runs the body of a handler. Nothing may be thrown across the C boundary; what can be thrown here
/// is that the host has no memory left.
template <typename Body>
CUresult guarded(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

}  // namespace plexrl::shim
