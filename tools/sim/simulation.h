#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/sim/job_model.h"
#include "tools/sim/scheduler.h"

namespace plexrl::sim {

/// A cluster and what its nodes do. Everything that a result rests on is here or in the jobs.
struct Setup {
  nodemgr::policy::Config policy;
  placement::MoveModel moves;
  std::vector<placement::NodeInfo> nodes;
  std::int64_t usable_hbm_bytes = 80'000'000'000;
  /// Steps that earlier runs of a job of this name left on record; 0: its first run.
  int history_steps = 8;
  /// Jobs that wait may be overtaken by later ones that fit.
  bool backfill = true;
  std::uint64_t seed = 1;
};

struct JobResult {
  std::string name;
  std::string team;
  double arrival_s = 0;
  double started_s = 0;
  double finished_s = 0;
  double alone_s = 0;  ///< the same draws with all GPUs to itself, memory loaded once
  int gpus = 0;
  double max_slowdown = 0;
  bool finished = false;
  double slowdown = 0;  ///< from its start on
  bool within_bound = false;
  double longest_wait_s = 0;  ///< for a lease, in one stretch
  std::uint64_t switches = 0;
  std::int64_t moved_bytes = 0;  ///< in and out, over its GPUs
  double worked_gpu_s = 0;
  std::string reason;      ///< of its placement
  std::vector<int> slots;  ///< numbers of slots, for the time line
};

struct SlotUse {
  int number = 0;
  std::string pool;
  int gpus = 0;
  double opened_s = 0;
  double closed_s = 0;
  double worked_s = 0;
};

struct Result {
  std::vector<JobResult> jobs;
  std::vector<SlotUse> slots;
  double gpu_s = 0;         ///< GPUs of open slots, over time
  double worked_gpu_s = 0;  ///< of those, computing
  double end_s = 0;
  std::uint64_t events = 0;  ///< steps of node policies and of jobs

  double mean_slowdown() const;
  double quantile_slowdown(double q) const;
  double mean_completion_s() const;  ///< from arrival
  double mean_queueing_s() const;
  double bound_met() const;  ///< share of jobs
};

/// Runs all jobs to their end. `progress` is told how many have finished, now and then.
Result simulate(const Setup& setup, const std::vector<JobModel>& jobs, Scheduler& scheduler,
                const std::function<void(std::size_t)>& progress = {});

}  // namespace plexrl::sim
