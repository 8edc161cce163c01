#pragma once

namespace plexrl::run {

/// plexrl-run's own exit codes, beside the job's (docs/contract.md): those of env(1) and
/// timeout(1).
enum ExitStatus : int { kPlexrlFailed = 125, kCannotExecute = 126, kNotFound = 127 };

}  // namespace plexrl::run
