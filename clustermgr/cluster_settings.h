#pragma once

#include <span>

#include "nodemgr/settings/load.h"

namespace plexrl::clustermgr {

/// Every setting of plexrl-clustermgr: the one table.
std::span<const nodemgr::settings::Row> cluster_table();

/// Reads file (--config, else /etc/plexrl/clustermgr.toml if it is there), environment and flags,
/// and checks what they say together.
[[nodiscard]] absl::StatusOr<nodemgr::settings::Loaded> load_cluster_settings(
    int argc, const char* const* argv, const char* const* environment);

}  // namespace plexrl::clustermgr
