#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "tools/cli/socket_path.h"

namespace plexrl::ctl {

using Json = nlohmann::ordered_json;

/// One question to a node manager, over its administration socket: a stream socket, one line of
/// JSON
/// there, {"verb": VERB, …}, one line with one object back. Blocks until the answer is complete, or
/// the manager has been silent for `patience` (it is stopped, say).
///
/// Errors, each a sentence for the user: NotFound (no manager answers at any of `sockets`),
/// Unavailable (it is silent, or hangs up),
/// PermissionDenied, InvalidArgument (the manager refuses, with its words), DataLoss (no JSON
/// object).
[[nodiscard]] absl::StatusOr<Json> ask(const std::vector<std::string>& sockets, const Json& request,
                                       std::chrono::seconds patience = std::chrono::seconds(60));

/// The administration sockets to try, in order (docs/contract.md, row "sockets"). With no
/// PLEXRL_SOCKET and no `simgpu`, managers of this user's simulated GPUs come last.
std::vector<std::string> admin_sockets(const cli::Env& env,
                                       const std::optional<std::string>& simgpu);

}  // namespace plexrl::ctl
