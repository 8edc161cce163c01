#pragma once

#include <vector>

#include "nodemgr/policy/decision.h"
#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr::policy {

enum class Room {
  kEnough,
  kLeaving,  ///< living gangs are giving up all that is short: a load may begin beside it
  kComing,   ///< something is on its way: less than is short, or of processes that have ended
  kNone,     ///< nobody is left to ask, and it does not fit
};

/// Makes room on one GPU: asks gangs that hold no lease, those first that are expected to need
/// their memory last (of which nothing is known, least recently used first), for just as many bytes
/// as `newcomer` lacks, and appends the kEvict decisions. Evictions past their deadline are given
/// up, and their gang is not asked again for a while. `wake` is lowered to the next deadline.
Room make_room(State& state, const Gang& newcomer, int gpu, std::int64_t needed_bytes,
               const char* reason, Instant now, std::vector<Decision>& out, Instant& wake);

/// Asks the gang, which holds no lease, for all that it has in HBM of that GPU.
Decision empty(const State& state, Gang& gang, int gpu, const char* reason, Instant now);

/// The gang that make_room would ask first, or null.
Gang* next_victim(State& state, int gpu, const Gang& newcomer, Instant now);

}  // namespace plexrl::nodemgr::policy
