#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "clustermgr/placement/tasks.h"
#include "clustermgr/placement/types.h"
#include "clustermgr/placement/virtual_node.h"
#include "tools/sim/time_model.h"

namespace plexrl::sim {

using clustermgr::placement::Duration;
using clustermgr::placement::from_seconds;
using clustermgr::placement::Instant;
using clustermgr::placement::seconds;

struct GangModel {
  std::string name;
  std::string pool;
  int gpus = 1;
  std::int64_t hbm_bytes = 0;    ///< per GPU, can be paged
  std::int64_t fixed_bytes = 0;  ///< per GPU, stays
  bool shareable = true;
};

/// A part of a step: work on one gang, on several side by side (each draws its own time), or time
/// without a GPU (no gang). The next stage begins when all of it has ended.
struct StageModel {
  std::string name;
  std::vector<int> gangs;
  TimeModel time;  ///< work of a burst
  int bursts = 1;  ///< per step, with a gap before each but the first
  TimeModel gap;
};

/// What a job really does. Placement never sees it.
struct JobModel {
  std::string name;
  std::string team;
  double arrival_s = 0;
  int steps = 1;
  int lag = 0;  ///< steps that the first stage may run ahead of the last; 0: one after the other
  double max_slowdown = 1.5;
  std::vector<std::string> apart_from;
  std::vector<GangModel> gangs;
  std::vector<StageModel> stages;

  int gpus() const {
    int sum = 0;
    for (const GangModel& gang : gangs) sum += gang.gpus;
    return sum;
  }
};

/// Empty, or what makes the model impossible to simulate.
std::string problem_of(const JobModel& job);

/// The job's work, drawn by `seed`. `steps` < 0: without end. `job` must outlive it.
std::unique_ptr<clustermgr::placement::TaskSource> tasks_of(const JobModel& job, std::uint64_t seed,
                                                            int steps);

/// When each of its first `steps` steps ends if it has all its GPUs to itself. With `moves`, its
/// memory is loaded once; else nothing moves.
std::vector<Instant> step_ends_alone(const JobModel& job, std::uint64_t seed, int steps,
                                     const clustermgr::placement::MoveModel* moves = nullptr);

/// What node agents would have recorded of `steps` steps of the job alone, with other draws.
clustermgr::placement::JobProfile recorded_alone(const JobModel& job,
                                                 clustermgr::placement::JobId id,
                                                 std::uint64_t seed, int steps);

}  // namespace plexrl::sim
