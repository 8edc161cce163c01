#pragma once

#include <optional>

#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr::policy {

/// When a gang that is in a gap is expected to want its GPUs again: half of its gaps that were like
/// this one, and have lasted as long, end before. Never before `now`. None: it is in no gap, or too
/// little is known of its gaps.
std::optional<Instant> predicted_wake(const Gang& gang, Instant now);

}  // namespace plexrl::nodemgr::policy
