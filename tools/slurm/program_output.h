#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plexrl::slurm {

/// How a program that was asked something has answered.
struct ProgramOutput {
  int status = 0;    ///< its exit status, 128+n after signal n, 127 when it can't be executed
  std::string text;  ///< what it wrote, to stdout and stderr; at most a megabyte
};

/// Runs a program, found by PATH, with this environment ("NAME=VALUE"), /dev/null for input, and
/// waits for its end. With the signal mask of the caller, so where that blocks all, Ctrl-C does not
/// end it. Error: it could not be started at all.
[[nodiscard]] absl::StatusOr<ProgramOutput> output_of(const std::vector<std::string>& words,
                                                      const std::vector<char*>& environment);

}  // namespace plexrl::slurm
