#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace plexrl::clustermgr {

/// The `[[team]]` tables of a settings file: `name`, and `gpus`, how many its placed jobs may have
/// together (those that take turns count each). A team that is not there has no quota; "" has none.
/// Errors name the file and the line.
[[nodiscard]] absl::StatusOr<std::map<std::string, int>> read_team_gpus(const std::string& path);

}  // namespace plexrl::clustermgr
