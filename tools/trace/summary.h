#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/trace/model.h"

/// The figures of a trace. Each time is a sum of slices of the same name, so the slices that
/// `export` writes add up to them.
namespace plexrl::trace {

struct Saved {
  std::uint64_t untouched_bytes = 0, repeated_bytes = 0, unchanged_bytes = 0, shared_bytes = 0;
  std::uint64_t total() const {
    return untouched_bytes + repeated_bytes + unchanged_bytes + shared_bytes;
  }
};

/// Of one job, summed over its gangs (two gangs that run for 1 s at once have run for 2 s).
struct JobSummary {
  std::string id, name, team, user;
  std::int64_t wall_ns = 0;    ///< admitted to ended
  std::int64_t queued_ns = 0;  ///< before it was admitted
  std::int64_t running_ns = 0, waiting_ns = 0, paging_ns = 0, draining_ns = 0, idle_ns = 0;
  std::map<std::string, std::int64_t> idle_by_ns;  ///< causes of idle time; "unknown" for the rest
  std::uint64_t out_bytes = 0, in_bytes = 0;       ///< HBM -> host, host -> HBM
  Saved saved;                                     ///< what did not have to leave HBM by copying
  std::uint64_t swaps_out = 0, swaps_in = 0;

  /// Of the time that its gangs existed.
  double duty_ratio() const;
  /// Its time with sharing over its time without: all of it over running + idle. 0 without either.
  double slowdown_ratio() const;
};

struct GpuSummary {
  Gpu gpu;
  std::int64_t running_ns = 0;    ///< some gang ran
  std::int64_t switching_ns = 0;  ///< none ran: a gang was draining, being evicted or loading
  std::uint64_t swaps = 0;
  double duty_ratio = 0;  ///< of the trace's span
};

struct Summary {
  std::int64_t span_ns = 0;  ///< from the first job's start to the last one's end
  std::vector<JobSummary> jobs;
  std::vector<GpuSummary> gpus;
};

Summary summarize(const Model& model);

/// From each decision to change the GPU's holder until the new one could run.
Pieces switches_of(const Model& model, std::uint32_t gpu);

/// The gang's time in `state` on GPU `gpu`, or on any when `gpu` is negative.
Pieces pieces_in(const Gang& gang, const std::string& state, int gpu = -1);

}  // namespace plexrl::trace
