#pragma once

#include "nodemgr/admin_parts.h"

namespace plexrl::nodemgr {

/// Adds `learned`, for who places jobs: bursts and gaps of each gang, and the links' speed.
void add_learned(Json& json, const AdminContext& context);

}  // namespace plexrl::nodemgr
