#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/installation.h"
#include "tools/run/manager_link.h"
#include "tools/run/manager_start.h"
#include "tools/run/options.h"

namespace plexrl::run {

/// A job that a node manager has taken.
struct Admission {
  ManagerLink link;
  std::string socket;
  bool is_another_users;              ///< the manager is
  std::optional<ManagerStart> start;  ///< how to restart the manager, if it is the user's own
  wire::JobSubmit submit;
  wire::JobAdmitted admitted;
};

/// Finds a node manager (or starts the user's own, when there is a CUDA driver to manage), submits
/// the job and waits until it is admitted. `say` gets the figures for the user while the job is
/// queued.
///
/// `env` is the job's environment so far, with the simulated GPU's settings if it is meant.
/// Errors: ResourceExhausted when the job was refused: it must not run. All others mean that it
/// can't share, and the message says why.
[[nodiscard]] absl::StatusOr<Admission> get_admitted(
    const Options& options, const cli::Installation& installation, const EnvBlock& env,
    const std::function<void(const std::string&)>& say);

/// Puts what the job's processes need to join it into `env` (docs/contract.md, row "environment,
/// set for the job"), without the preload.
void describe_job(const Options& options, const Admission& admission, EnvBlock& env);

}  // namespace plexrl::run
