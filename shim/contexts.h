#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/wire.h"

namespace plexrl::shim {

/// The contexts of this process that are known to live, and their devices.
///
/// Contexts made by cuCtxCreate and cuDevicePrimaryCtxRetain are told by those calls; the runtime
/// library makes its primary context through a private table, so a context is also noted when a
/// thread makes it current or first stops at the gate with it.
///
/// Threads: any; takes its own lock, never held in a driver call.
class Contexts {
 public:
  struct Known {
    CUcontext context;
    CUdevice device;
  };

  /// Notes `context`. True when it was new.
  bool add(CUcontext context, CUdevice device);
  void remove(CUcontext context);

  /// Counts removals: whoever remembers that it has seen a context forgets it when this changes.
  std::uint64_t removals() const noexcept { return removals_.load(std::memory_order_acquire); }

  std::vector<Known> all() const;
  /// Some living context of `device`, for copies of ours; none when it has none.
  std::optional<CUcontext> any_of(CUdevice device) const;
  std::optional<CUdevice> device_of(CUcontext context) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Known> known_;
  std::atomic<std::uint64_t> removals_{0};
};

/// Those of this process. Never destroyed: other libraries' destructors still call the driver.
Contexts& contexts();

/// The current context of this thread and its device, as the driver says; nothing is noted.
std::optional<Contexts::Known> current_context() noexcept;

/// What any call in the current context answers: CUDA_SUCCESS, the error of earlier work that ended
/// the context, or that there is none. Submits nothing and disturbs no capture.
CUresult context_error() noexcept;

/// What a call that finds no room answers: CUDA_ERROR_OUT_OF_MEMORY, but in a context that can't be
/// used what it answers to every call.
CUresult no_room() noexcept;

}  // namespace plexrl::shim
