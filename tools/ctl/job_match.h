#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/ctl/admin_client.h"

namespace plexrl::ctl {

/// The id of the job that `word` names: an id, a unique beginning of an id, or a name.
/// `jobs` is the array of that name in the manager's answer. Errors: NotFound (with the nearest
/// name), InvalidArgument when several jobs fit, with their ids.
[[nodiscard]] absl::StatusOr<std::string> find_job(const Json& jobs, const std::string& word);

}  // namespace plexrl::ctl
