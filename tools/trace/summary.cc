#include "tools/trace/summary.h"

#include <algorithm>

namespace plexrl::trace {
namespace {

// Idle time by cause: each gap counts as far as the gang was idle in it.
void add_idle_causes(const Model& model, const Gang& gang, JobSummary& job) {
  Pieces unexplained = merge(pieces_in(gang, "idle"));
  for (const Gap& gap : model.gaps) {
    if (gap.job_id != gang.job_id || gap.gang != gang.id || gap.cause.empty()) continue;
    const Pieces rest = subtract(unexplained, {{gap.start_ns, gap.end_ns}});
    const std::int64_t explained = total_ns(unexplained) - total_ns(rest);
    if (explained > 0) job.idle_by_ns[gap.cause] += explained;
    unexplained = rest;
  }
  if (!unexplained.empty()) job.idle_by_ns["unknown"] += total_ns(unexplained);
}

void add_gang(const Model& model, const Gang& gang, JobSummary& job) {
  for (const Slice& slice : gang.slices) {
    if (slice.state == "running") job.running_ns += slice.length_ns();
    if (slice.state == "waiting") job.waiting_ns += slice.length_ns();
    if (slice.state == "loading") job.paging_ns += slice.length_ns();
    if (slice.state == "draining") job.draining_ns += slice.length_ns();
    if (slice.state == "idle") job.idle_ns += slice.length_ns();
  }
  add_idle_causes(model, gang, job);
}

// Every process tells what it moved; what left while no holder changed is in no swap.
void add_moved(const Model& model, JobSummary& job) {
  for (const auto& [at_ns, record] : model.paging) {
    if (record.job_id() != job.id) continue;
    job.out_bytes += record.out_bytes();
    job.in_bytes += record.in_bytes();
    if (record.kind() == PagingRecord::EVICT) {
      job.saved.untouched_bytes += record.untouched_bytes();
    }
  }
}

void add_swaps(const Model& model, JobSummary& job) {
  const bool has_paging = !model.paging.empty();  // else it is a trace of an older manager
  if (has_paging) add_moved(model, job);
  for (const auto& [at_ns, record] : model.swaps) {
    if (record.out_job_id() == job.id) {
      ++job.swaps_out;
      if (!has_paging) {
        job.out_bytes += record.out_bytes();
        job.saved.untouched_bytes += record.untouched_bytes();
      }
      job.saved.repeated_bytes += record.repeated_bytes();
      job.saved.unchanged_bytes += record.unchanged_bytes();
      job.saved.shared_bytes += record.shared_bytes();
    }
    if (record.in_job_id() == job.id) {
      ++job.swaps_in;
      if (!has_paging) job.in_bytes += record.in_bytes();
    }
  }
}

GpuSummary summarize_gpu(const Model& model, const Gpu& gpu, std::int64_t span_ns) {
  GpuSummary summary{.gpu = gpu};
  Pieces running, switching = switches_of(model, gpu.index);
  for (const Gang& gang : model.gangs) {
    const int index = static_cast<int>(gpu.index);
    for (const auto& piece : pieces_in(gang, "running", index)) running.push_back(piece);
    for (const char* state : {"loading", "draining"}) {
      for (const auto& piece : pieces_in(gang, state, index)) switching.push_back(piece);
    }
  }
  running = merge(std::move(running));
  summary.running_ns = total_ns(running);
  summary.switching_ns = total_ns(subtract(merge(std::move(switching)), running));
  summary.swaps = static_cast<std::uint64_t>(
      std::count_if(model.swaps.begin(), model.swaps.end(),
                    [&](const Swap& swap) { return swap.record.gpu_index() == gpu.index; }));
  if (span_ns > 0) {
    summary.duty_ratio = static_cast<double>(summary.running_ns) / static_cast<double>(span_ns);
  }
  return summary;
}

}  // namespace

double JobSummary::duty_ratio() const {
  const auto all = running_ns + waiting_ns + paging_ns + draining_ns + idle_ns;
  return all == 0 ? 0 : static_cast<double>(running_ns) / static_cast<double>(all);
}

double JobSummary::slowdown_ratio() const {
  const auto alone = running_ns + idle_ns;
  const auto all = alone + waiting_ns + paging_ns + draining_ns;
  return alone == 0 ? 0 : static_cast<double>(all) / static_cast<double>(alone);
}

Pieces switches_of(const Model& model, std::uint32_t gpu) {
  Pieces pieces;
  for (const auto& [at_ns, record] : model.swaps) {
    const auto decided = static_cast<std::int64_t>(record.decided_at_ns());
    if (record.gpu_index() == gpu && decided != 0 && decided < at_ns) {
      pieces.emplace_back(decided, at_ns);
    }
  }
  return merge(std::move(pieces));
}

Pieces pieces_in(const Gang& gang, const std::string& state, int gpu) {
  Pieces pieces;
  for (const Slice& slice : gang.slices) {
    const bool on_gpu = gpu < 0 || ((slice.gpus_mask >> gpu) & 1) != 0;
    if (slice.state == state && on_gpu) pieces.emplace_back(slice.start_ns, slice.end_ns);
  }
  return pieces;
}

Summary summarize(const Model& model) {
  Summary summary;
  std::int64_t first = INT64_MAX, last = 0;
  for (const Job& job : model.jobs) {
    first = std::min(first, job.start_ns);
    last = std::max(last, job.end_ns);
    JobSummary& line = summary.jobs.emplace_back();
    line.id = job.id;
    line.name = model.job_name(job.id);
    line.team = job.team;
    line.user = job.user;
    line.wall_ns = job.end_ns - job.start_ns;
    line.queued_ns = job.queued_ns;
    for (const Gang* gang : model.gangs_of(job.id)) add_gang(model, *gang, line);
    add_swaps(model, line);
  }
  if (!model.jobs.empty()) summary.span_ns = last - first;
  for (const Gpu& gpu : model.gpus) {
    summary.gpus.push_back(summarize_gpu(model, gpu, summary.span_ns));
  }
  return summary;
}

}  // namespace plexrl::trace
