#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/run/job_env.h"
#include "tools/run/manager_link.h"

namespace plexrl::run {

/// How a user's own node manager is started.
struct ManagerStart {
  std::string executable;  ///< plexrl-nodemgr
  std::string socket;      ///< its folder is made (0700) when missing
  std::string state;       ///< folder of its journal, traces and log; made (0700) when missing
  EnvBlock env;            ///< nothing of a job, and the simulated GPU's libraries if that is meant
};

/// Connects to the manager at `start.socket`, starting it when none answers.
///
/// At most one is started, however many plexrl-runs try at once: the work is done under a lock on
/// `<socket>.lock`, and who gets the lock looks again first. The manager runs in a session of its
/// own with /dev/null and `<state>/nodemgr.log` as its standard files, and is nobody's child.
/// Returns when it has said that it is ready, or has failed; then the error carries the last line
/// of its log.
[[nodiscard]] absl::StatusOr<ManagerLink> connect_or_start(ManagerStart& start);

/// Makes `folder` and its missing parents (0700). Errors: it can't be made; it is not a directory
/// of this user; anybody may write to it or to a folder above it (someone else could then pose as
/// the manager). /tmp, where only owners may rename their entries, is fine as a folder above.
[[nodiscard]] absl::Status make_private_folder(const std::string& folder);

}  // namespace plexrl::run
