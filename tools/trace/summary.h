#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/model.h"

/// The figures of a trace, in two kinds.
///
/// Times of a state (running, waiting, paging, draining) are sums of slices of that state, so the
/// slices that `export` writes add up to them. Busy and idle tell of work, which begins and ends
/// within leases: a gang is busy while something that it submitted is outstanding, and idle while
/// nothing is and it wants nothing, whether it holds a lease or not. Duty is the share of time that
/// is busy, as in `plexrl-ctl gpus`.
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
  std::int64_t running_ns = 0, waiting_ns = 0, paging_ns = 0, draining_ns = 0, paused_ns = 0;
  std::int64_t held_ns = 0;  ///< with a lease: running, paging and draining
  std::int64_t busy_ns = 0;
  std::int64_t idle_ns = 0;
  std::int64_t gangs_ns = 0;                       ///< all of its gangs' time, in whatever state
  std::map<std::string, std::int64_t> idle_by_ns;  ///< causes of idle time; "unknown" for the rest
  std::uint64_t out_bytes = 0, in_bytes = 0;       ///< HBM -> host, host -> HBM
  Saved saved;                                     ///< what did not have to leave HBM by copying
  std::uint64_t swaps_out = 0, swaps_in = 0;

  /// Busy, of the time that its gangs existed. Where the trace does not tell when work was
  /// outstanding (Model::has_activity), all of the time with a running lease is taken as busy.
  double duty_ratio() const;
  /// Its time with sharing over its time without: all but pauses over what is neither waiting nor
  /// paging nor draining. 0 without any.
  double slowdown_ratio() const;
};

struct GpuSummary {
  Gpu gpu;
  std::int64_t running_ns = 0;    ///< some gang was in the state running
  std::int64_t held_ns = 0;       ///< some gang had it: running, draining or loading
  std::int64_t busy_ns = 0;       ///< work of a holder was outstanding
  std::int64_t switching_ns = 0;  ///< none ran: a gang was draining, being evicted or loading
  std::uint64_t swaps = 0;
  double duty_ratio = 0;  ///< busy, of the trace's span
};

struct Summary {
  std::int64_t span_ns = 0;  ///< from the first job's start to the last one's end
  std::vector<JobSummary> jobs;
  std::vector<GpuSummary> gpus;
};

Summary summarize(const Model& model);

/// The gaps of each gang, by job and gang, merged.
using GapsByGang = std::map<std::pair<std::string, std::uint64_t>, Pieces>;
GapsByGang gaps_by_gang(const Model& model);

/// A summary that is put together piece by piece, for a trace that is not all in memory: figures
/// are sums, so those of pieces add up to those of the whole.
class Sums {
 public:
  /// The figures of jobs, and switches of GPUs. Each slice, swap and paging record is in one
  /// `settled` model alone; gaps in each that has slices beside them.
  void add_settled(const Model& settled);
  /// The times of GPUs between the two moments. `model` has all slices, and swaps that ended later,
  /// that reach in there; so has `gaps`.
  void add_gpus(const Model& model, const GapsByGang& gaps, std::int64_t from_ns,
                std::int64_t to_ns);
  /// With names and times of jobs as in `ended`, which has nothing open any more.
  Summary summary(const Model& ended) const;

 private:
  std::map<std::string, JobSummary> jobs_;  ///< by id
  std::map<std::uint32_t, GpuSummary> gpus_;
};

/// From each decision to change the GPU's holder until the new one could run.
Pieces switches_of(const Model& model, std::uint32_t gpu);

/// When the gang had work outstanding, and when a lease of its ran without any.
struct Activity {
  Pieces busy, held_idle;
};
/// `gaps`: where the gang had nothing on its GPUs, merged. `gpu`: as for pieces_in.
Activity activity_of(const Gang& gang, const Pieces& gaps, int gpu = -1);

/// The gang's time in `state` on GPU `gpu`, or on any when `gpu` is negative.
Pieces pieces_in(const Gang& gang, const std::string& state, int gpu = -1);

}  // namespace plexrl::trace
