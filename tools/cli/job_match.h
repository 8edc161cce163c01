#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plexrl::cli {

struct NamedJob {
  std::string id, name;
};

/// The id of the job that `word` names: an id, a unique beginning of an id, or a name.
/// Errors: NotFound (with the nearest name), InvalidArgument when several jobs fit, with their ids.
[[nodiscard]] absl::StatusOr<std::string> find_job(const std::vector<NamedJob>& jobs,
                                                   const std::string& word);

}  // namespace plexrl::cli
