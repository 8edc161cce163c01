#pragma once

namespace plexrl::nodemgr {

/// A named place where a test build of the daemon dies when PLEXRL_FAULT=NAME[:N] asks for it (at
/// the N-th passage; 1 is the default). In the daemon proper this is empty.
#ifdef PLEXRL_FAULT_POINTS
void fault_point(const char* name);
#else
inline void fault_point(const char*) {}
#endif

}  // namespace plexrl::nodemgr
