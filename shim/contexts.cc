#include "shim/contexts.h"

#include <algorithm>

#include "interpose/driver.h"

namespace plexrl::shim {

Contexts& contexts() {
  static Contexts& instance = *new Contexts;
  return instance;
}

bool Contexts::add(CUcontext context, CUdevice device) {
  const std::lock_guard lock(mutex_);
  for (const Known& known : known_) {
    if (known.context == context) return false;
  }
  known_.push_back({context, device});
  return true;
}

void Contexts::remove(CUcontext context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [&](const Known& known) { return known.context == context; });
  removals_.fetch_add(1, std::memory_order_acq_rel);
}

std::vector<Contexts::Known> Contexts::all() const {
  const std::lock_guard lock(mutex_);
  return known_;
}

std::optional<CUcontext> Contexts::any_of(CUdevice device) const {
  const std::lock_guard lock(mutex_);
  for (const Known& known : known_) {
    if (known.device == device) return known.context;
  }
  return std::nullopt;
}

std::optional<CUdevice> Contexts::device_of(CUcontext context) const {
  const std::lock_guard lock(mutex_);
  for (const Known& known : known_) {
    if (known.context == context) return known.device;
  }
  return std::nullopt;
}

std::optional<Contexts::Known> current_context() noexcept {
  Contexts::Known known{};
  if (driver.cuCtxGetCurrent(&known.context) != CUDA_SUCCESS || known.context == nullptr) {
    return std::nullopt;
  }
  if (driver.cuCtxGetDevice(&known.device) != CUDA_SUCCESS) return std::nullopt;
  return known;
}

CUresult context_error() noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status);
}

CUresult no_room() noexcept {
  const CUresult error = context_error();
  return error != CUDA_SUCCESS ? error : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace plexrl::shim
