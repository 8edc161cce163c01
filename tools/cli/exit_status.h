#pragma once

namespace plexrl::cli {

/// What the tools return (docs/contract.md, row "exit codes"). plexrl-run has its own.
enum ExitStatus : int { kDone = 0, kFailed = 1, kUsage = 2 };

}  // namespace plexrl::cli
