#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/cluster/manager_channel.h"

/// One question each; the answer is text for a terminal, or with `json` one object and a newline.
namespace plexrl::cluster_tool {

[[nodiscard]] absl::StatusOr<std::string> show_status(const ManagerAddress& manager, bool json);

[[nodiscard]] absl::StatusOr<std::string> show_nodes(const ManagerAddress& manager, bool json);

}  // namespace plexrl::cluster_tool
