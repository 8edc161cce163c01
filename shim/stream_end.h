#pragma once

#include "interpose/driver.h"
#include "shim/driver_scope.h"

namespace plexrl::shim {

/// Waits until what `stream` was given has ended. The driver may refuse to wait without a word on
/// the work; memory under it must not be taken away then, so it is asked once more.
inline CUresult wait_for(CUstream stream) noexcept {
  const CUresult result = driver.cuStreamSynchronize(stream);
  if (result == CUDA_SUCCESS || is_sticky(result)) return result;
  return driver.cuStreamSynchronize(stream);
}

/// The same for what was given to `stream` before `event` was recorded in it.
inline CUresult wait_for(CUevent event, CUstream stream) noexcept {
  const CUresult result = driver.cuEventSynchronize(event);
  if (result == CUDA_SUCCESS || is_sticky(result)) return result;
  return wait_for(stream);
}

}  // namespace plexrl::shim
