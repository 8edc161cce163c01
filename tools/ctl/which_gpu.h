#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/socket_path.h"

namespace plexrl::ctl {

/// The specification of the simulated GPU that is meant, if one is: that of the flag `--simgpu`
/// (empty: not given; "true": given without a value), else that of PLEXRL_SIMGPU.
/// Errors: InvalidArgument, with the name of the flag or the variable.
[[nodiscard]] absl::StatusOr<std::optional<std::string>> simulated_gpu(const cli::Env& env,
                                                                       const std::string& flag);

}  // namespace plexrl::ctl
