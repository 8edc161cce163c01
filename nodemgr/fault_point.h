#pragma once

namespace plexrl::nodemgr {

/// A named place where a test build of the daemon (plexrl-nodemgr-faults) dies when
/// PLEXRL_FAULT=NAME[:N] asks for it, at the N-th passage (1 is the default). The daemon proper
/// links an empty one.
void fault_point(const char* name);

}  // namespace plexrl::nodemgr
