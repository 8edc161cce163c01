#pragma once

#include <cstddef>

#include "interpose/cuda_api.h"
#include "shim/hot.h"

namespace plexrl::shim {

/// A driver call that the caller keeps alive meanwhile. Allocates nothing.
class CallRef {
 public:
  template <typename Call>
  CallRef(const Call& call) noexcept  // NOLINT(google-explicit-constructor)
      : call_(&call), make_([](const void* made) { return (*static_cast<const Call*>(made))(); }) {}

  CUresult operator()() const { return make_(call_); }

 private:
  const void* call_;
  CUresult (*make_)(const void*);
};

/// Makes a driver call that takes HBM which stays the driver's (a context, a module), again and
/// again while it answers OUT_OF_MEMORY and neighbours can be evicted for it (invariant 6).
///
/// The first try needs no lease. The others hold one, because the manager makes room for a holder
/// only; after kPatience without room the job gets the driver's answer, which then means that its
/// own memory fills the GPU. `device` is attached first when it is not yet.
CUresult with_room(CUdevice device, CallRef call);

/// The same on the current device for a call that has just answered OUT_OF_MEMORY.
PLEXRL_COLD CUresult again_with_room(CallRef call) noexcept;

/// Makes a call for which the driver may need HBM of its own: mostly it does not.
template <typename Call>
CUresult call_with_room(Call call) {
  const CUresult result = call();
  return result != CUDA_ERROR_OUT_OF_MEMORY ? result : again_with_room(call);
}

/// The same for a call that is made elsewhere: returns when the driver says that `bytes` are free
/// on the current device, or after kPatience.
void wait_for_room(CUdevice device, std::size_t bytes);

}  // namespace plexrl::shim
