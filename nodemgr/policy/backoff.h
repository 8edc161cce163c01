#pragma once

#include <cstdint>

#include "nodemgr/policy/types.h"

namespace plexrl::nodemgr::policy {

/// How long to leave something alone after its `failures`-th failure in a row (1, 2, …): base,
/// 2·base, 4·base, … up to cap, ±20 % by `seed` so that gangs which failed together don't retry
/// together.
Duration backoff(Duration base, Duration cap, int failures, std::uint64_t seed);

}  // namespace plexrl::nodemgr::policy
