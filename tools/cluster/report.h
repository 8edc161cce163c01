#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"

namespace plexrl::cluster_tool {

/// What there is to report of a node, as its manager answers on the administration socket.
[[nodiscard]] absl::StatusOr<cluster::v1::ReportNodeRequest> make_report(
    const std::string& admin_socket, const std::string& node);

}  // namespace plexrl::cluster_tool
