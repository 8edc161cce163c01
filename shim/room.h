#pragma once

#include <functional>

#include "interpose/cuda_api.h"

namespace plexrl::shim {

/// Makes a driver call that takes HBM which stays the driver's (a context, a module), again and
/// again while it answers OUT_OF_MEMORY and neighbours can be evicted for it (invariant 6).
///
/// The first try needs no lease. The others hold one, because the manager makes room for a holder
/// only; after kPatience without room the job gets the driver's answer, which then means that its
/// own memory fills the GPU. `device` is attached first when it is not yet.
CUresult with_room(CUdevice device, const std::function<CUresult()>& call);

/// The same for a call that is made elsewhere: returns when the driver says that `bytes` are free
/// on the current device, or after kPatience.
void wait_for_room(CUdevice device, std::size_t bytes);

}  // namespace plexrl::shim
