#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sim/simulation.h"

namespace plexrl::sim {

/// What a workload file says (docs/simulator.md has the keys).
struct Workload {
  std::string name;
  Setup setup;
  placement::PlacerConfig placer;
  std::vector<std::string> schedulers;  ///< "plexrl" or a baseline
  std::vector<JobModel> jobs;
};

/// Unknown keys, wrong types and impossible values are errors that name the place in the file and,
/// for a key, the nearest known one.
absl::StatusOr<Workload> parse_workload(const std::string& text);
absl::StatusOr<Workload> read_workload(const std::string& path);

}  // namespace plexrl::sim
