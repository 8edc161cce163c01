#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plexrl::sim {

/// A job of a recorded cluster trace.
struct TraceJob {
  double submit_s = 0;
  double duration_s = 0;
  int gpus = 1;
};

/// A trace with a header that names the columns `num_gpu`, `submit_time` and `duration` (the latter
/// two in milliseconds), others ignored, as Muri's simulator has them. By submission. Errors name
/// the line.
absl::StatusOr<std::vector<TraceJob>> read_trace_jobs(const std::string& path);

}  // namespace plexrl::sim
