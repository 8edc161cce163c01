#pragma once

#include <cstdio>
#include <exception>

namespace plexrl::cli {

/// What the tools return (docs/contract.md, row "exit codes"). plexrl-run has its own.
enum ExitStatus : int { kDone = 0, kFailed = 1, kUsage = 2 };

/// What a tool's main returns: what `run` does, or kFailed with a line on stderr when it throws, as
/// for want of memory.
template <typename Run>
int guarded_main(const char* program, Run run, int argc, char** argv) noexcept {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return kFailed;
  }
}

}  // namespace plexrl::cli
