#pragma once

namespace plexrl::shim {

/// ncclGroupStart less ncclGroupEnd of this thread: NCCL does nothing before the last of them.
extern constinit thread_local int nccl_groups;

}  // namespace plexrl::shim
