#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/cluster/manager_channel.h"

/// One question each; the answer is text for a terminal, or with `json` one object and a newline.
namespace plexrl::cluster_tool {

[[nodiscard]] absl::StatusOr<std::string> show_status(const ManagerAddress& manager, bool json);

[[nodiscard]] absl::StatusOr<std::string> show_nodes(const ManagerAddress& manager, bool json);

/// `job`: an id, the beginning of one, or a name.
[[nodiscard]] absl::StatusOr<std::string> explain_placement(const ManagerAddress& manager,
                                                            const std::string& job, bool json);

}  // namespace plexrl::cluster_tool
