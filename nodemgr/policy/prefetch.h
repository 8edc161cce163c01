#pragma once

#include <vector>

#include "nodemgr/policy/decision.h"
#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr::policy {

/// Memory of gangs without a lease that comes back before they have one: of those who wait, and of
/// those that are expected to wake (wake.h) in about the time that loading takes. Into free HBM
/// only: nobody is evicted for it, and who needs the room gets it back, without a copy, because
/// nothing has written there. At a share of the link, one gang a GPU at a time, and not begun while
/// memory leaves the GPU or a gang loads there. Soonest first; lowers `wake` to when the next one
/// is due.
void prefetch(State& state, Instant now, std::vector<Decision>& out, Instant& wake);

}  // namespace plexrl::nodemgr::policy
