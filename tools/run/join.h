#pragma once

#include "absl/status/status.h"
#include "tools/run/job_env.h"

namespace plexrl::run {

/// May a command with this environment be part of the job that it names? Asks that job's manager;
/// one that is being restarted is waited for, as long as the shim would wait.
///
/// Errors: FailedPrecondition when the environment names no job; all others mean that the command
/// would not be shared, and the message says why.
[[nodiscard]] absl::Status check_join(const EnvBlock& env);

}  // namespace plexrl::run
