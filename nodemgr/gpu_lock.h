#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// The right to manage one GPU, kept while the result is open: a flock on FOLDER/UUID
/// (/run/lock/plexrl), or where that folder can't be had, the abstract socket @plexrl-UUID.
///
/// The file holds `pid uid socket` of its maker, so that whoever comes second can say who has it
/// (AlreadyExists). `socket` is where this manager answers.
[[nodiscard]] absl::StatusOr<ScopedFd> lock_gpu(const std::string& uuid, const std::string& folder,
                                                const std::string& socket);

}  // namespace plexrl::nodemgr
