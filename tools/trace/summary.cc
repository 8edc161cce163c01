#include "tools/trace/summary.h"

#include <algorithm>

namespace plexrl::trace {
namespace {

constexpr std::size_t kIdShown = 8;  ///< of a job without a name

Pieces pieces_in_any(const Gang& gang, std::initializer_list<const char*> states, int gpu) {
  Pieces pieces;
  for (const char* state : states) {
    for (const auto& piece : pieces_in(gang, state, gpu)) pieces.push_back(piece);
  }
  return merge(std::move(pieces));
}

const Pieces& gaps_of(const GapsByGang& gaps, const Gang& gang) {
  static const Pieces kNone;
  const auto found = gaps.find({gang.job_id, gang.id});
  return found == gaps.end() ? kNone : found->second;
}

// Idle time by cause: of gaps that overlap, the one that began first counts.
void add_idle_causes(const std::vector<const Gap*>& gaps, const Pieces& idle, JobSummary& job) {
  std::map<std::string, Pieces> by_cause;
  for (const Gap* one : gaps) {
    const Gap& gap = *one;
    if (gap.cause.empty() && gap.causes.empty()) continue;
    // The parts of a gap one after the other: when each was is not known.
    std::int64_t from = gap.start_ns;
    for (const CauseTime& one : causes_of(gap)) {
      by_cause[one.cause].emplace_back(from, from + one.time_ns);
      from += one.time_ns;
    }
  }
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (auto& [cause, pieces] : by_cause) {
    pieces = merge(std::move(pieces));
    if (!pieces.empty()) order.emplace_back(pieces.front().first, cause);
  }
  std::sort(order.begin(), order.end());
  Pieces unexplained = idle;
  for (const auto& [begin, cause] : order) {
    Pieces rest = subtract(unexplained, by_cause[cause]);
    const std::int64_t explained = total_ns(unexplained) - total_ns(rest);
    if (explained > 0) job.idle_by_ns[cause] += explained;
    unexplained = std::move(rest);
  }
  if (!unexplained.empty()) job.idle_by_ns["unknown"] += total_ns(unexplained);
}

void add_gang(const Gang& gang, const std::vector<const Gap*>& told, const Pieces& gaps,
              JobSummary& job) {
  for (const Slice& slice : gang.slices) {
    if (slice.state == "running") job.running_ns += slice.length_ns();
    if (slice.state == "waiting") job.waiting_ns += slice.length_ns();
    if (slice.state == "loading") job.paging_ns += slice.length_ns();
    if (slice.state == "draining") job.draining_ns += slice.length_ns();
    if (slice.state == "paused") job.paused_ns += slice.length_ns();
    job.gangs_ns += slice.length_ns();
  }
  const Activity activity = activity_of(gang, gaps);
  job.held_ns += total_ns(pieces_in_any(gang, {"running", "loading", "draining"}, -1));
  job.busy_ns += total_ns(activity.busy);
  Pieces idle = pieces_in(gang, "idle");
  idle.insert(idle.end(), activity.held_idle.begin(), activity.held_idle.end());
  idle = merge(std::move(idle));
  job.idle_ns += total_ns(idle);
  add_idle_causes(told, idle, job);
}

// Every process tells what it moved; what left while no holder changed is in no swap.
void add_moved(const PagingRecord& record, JobSummary& job) {
  job.out_bytes += record.out_bytes();
  job.in_bytes += record.in_bytes();
  if (record.kind() != PagingRecord::EVICT) return;
  job.saved.untouched_bytes += record.untouched_bytes();
  job.saved.repeated_bytes += record.repeated_bytes();
  job.saved.unchanged_bytes += record.unchanged_bytes();
}

void add_swap(const SwitchRecord& record, bool has_paging,
              std::map<std::string, JobSummary>& jobs) {
  if (!record.out_job_id().empty()) {
    JobSummary& job = jobs[record.out_job_id()];
    ++job.swaps_out;
    if (!has_paging) {
      job.out_bytes += record.out_bytes();
      job.saved.untouched_bytes += record.untouched_bytes();
      job.saved.repeated_bytes += record.repeated_bytes();
      job.saved.unchanged_bytes += record.unchanged_bytes();
    }
    job.saved.shared_bytes += record.shared_bytes();
  }
  if (!record.in_job_id().empty()) {
    JobSummary& job = jobs[record.in_job_id()];
    ++job.swaps_in;
    if (!has_paging) job.in_bytes += record.in_bytes();
  }
}

Pieces between(const Pieces& pieces, std::int64_t from_ns, std::int64_t to_ns) {
  Pieces inside;
  for (const auto& [begin, end] : pieces) {
    if (begin < to_ns && end > from_ns) {
      inside.emplace_back(std::max(begin, from_ns), std::min(end, to_ns));
    }
  }
  return inside;
}

}  // namespace

double JobSummary::duty_ratio() const {
  return gangs_ns == 0 ? 0 : static_cast<double>(busy_ns) / static_cast<double>(gangs_ns);
}

double JobSummary::slowdown_ratio() const {
  const auto all = gangs_ns - paused_ns;
  const auto alone = all - waiting_ns - paging_ns - draining_ns;
  return alone <= 0 ? 0 : static_cast<double>(all) / static_cast<double>(alone);
}

Activity activity_of(const Gang& gang, const Pieces& gaps, int gpu) {
  const Pieces runs = pieces_in_any(gang, {"running", "draining"}, gpu);
  Pieces busy = subtract(runs, gaps);
  return {busy, subtract(runs, busy)};
}

GapsByGang gaps_by_gang(const Model& model) {
  GapsByGang gaps;
  for (const Gap& gap : model.gaps) {
    gaps[{gap.job_id, gap.gang}].emplace_back(gap.start_ns, gap.end_ns);
  }
  for (auto& [gang, pieces] : gaps) pieces = merge(std::move(pieces));
  return gaps;
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

void Sums::add_settled(const Model& model) {
  std::map<std::pair<std::string, std::uint64_t>, std::vector<const Gap*>> told;
  for (const Gap& gap : model.gaps) told[{gap.job_id, gap.gang}].push_back(&gap);
  const GapsByGang gaps = gaps_by_gang(model);
  for (const Gang& gang : model.gangs) {
    add_gang(gang, told[{gang.job_id, gang.id}], gaps_of(gaps, gang), jobs_[gang.job_id]);
  }
  for (const auto& [at_ns, record] : model.paging) add_moved(record, jobs_[record.job_id()]);
  for (const auto& [at_ns, record] : model.swaps) {
    add_swap(record, model.has_paging, jobs_);
    ++gpus_[record.gpu_index()].swaps;
  }
}

void Sums::add_gpus(const Model& model, const GapsByGang& gaps, std::int64_t from_ns,
                    std::int64_t to_ns) {
  for (const Gpu& gpu : model.gpus) {
    const int index = static_cast<int>(gpu.index);
    Pieces running, held, busy, switching;
    const auto add = [&](Pieces& to, const Pieces& pieces) {
      const Pieces inside = between(pieces, from_ns, to_ns);
      to.insert(to.end(), inside.begin(), inside.end());
    };
    add(switching, switches_of(model, gpu.index));
    for (const Gang& gang : model.gangs) {
      add(running, pieces_in(gang, "running", index));
      add(busy, activity_of(gang, gaps_of(gaps, gang), index).busy);
      add(switching, pieces_in_any(gang, {"loading", "draining"}, index));
      add(held, pieces_in_any(gang, {"running", "loading", "draining"}, index));
    }
    running = merge(std::move(running));
    GpuSummary& sum = gpus_[gpu.index];
    sum.running_ns += total_ns(running);
    sum.held_ns += total_ns(merge(std::move(held)));
    sum.busy_ns += total_ns(merge(std::move(busy)));
    sum.switching_ns += total_ns(subtract(merge(std::move(switching)), running));
  }
}

Summary Sums::summary(const Model& model) const {
  Summary summary;
  std::int64_t first = INT64_MAX, last = 0;
  for (const Job& job : model.jobs) {
    first = std::min(first, job.start_ns);
    last = std::max(last, job.end_ns);
    const auto sums = jobs_.find(job.id);
    JobSummary& line = summary.jobs.emplace_back(sums == jobs_.end() ? JobSummary{} : sums->second);
    line.id = job.id;
    line.name = job.name.empty() ? job.id.substr(0, kIdShown) : job.name;
    line.team = job.team;
    line.user = job.user;
    line.wall_ns = job.end_ns - job.start_ns;
    line.queued_ns = job.queued_ns;
  }
  if (!model.jobs.empty()) summary.span_ns = last - first;
  for (const Gpu& gpu : model.gpus) {
    const auto sums = gpus_.find(gpu.index);
    GpuSummary& line = summary.gpus.emplace_back(sums == gpus_.end() ? GpuSummary{} : sums->second);
    line.gpu = gpu;
    if (summary.span_ns > 0) {
      line.duty_ratio = static_cast<double>(line.busy_ns) / static_cast<double>(summary.span_ns);
    }
  }
  return summary;
}

Summary summarize(const Model& model) {
  Sums sums;
  sums.add_settled(model);
  sums.add_gpus(model, gaps_by_gang(model), INT64_MIN, INT64_MAX);
  return sums.summary(model);
}

}  // namespace plexrl::trace
