#include "tools/trace/model_builder.h"

#include <algorithm>

namespace plexrl::trace {

void ModelBuilder::take(const TraceRecord& record) {
  const auto at = static_cast<std::int64_t>(record.at_ns());
  if (model_.start_ns == 0) model_.start_ns = at;
  now_ = at;
  take(at, record);
  model_.end_ns = std::max(model_.end_ns, at);
}

Model ModelBuilder::finish() {
  close_everything(model_.end_ns);
  std::stable_sort(model_.swaps.begin(), model_.swaps.end(),
                   [](const Swap& a, const Swap& b) { return a.at_ns < b.at_ns; });
  std::sort(model_.gpus.begin(), model_.gpus.end(),
            [](const Gpu& a, const Gpu& b) { return a.index < b.index; });
  if (!model_.has_activity) gaps_from_idle_slices(model_);
  return std::move(model_);
}

Model ModelBuilder::take_settled(std::int64_t before_ns, bool has_gap_records) {
  Model settled;
  settled.start_ns = model_.start_ns;
  settled.end_ns = model_.end_ns;
  settled.node = model_.node;
  settled.simulated = model_.simulated;
  settled.has_activity = model_.has_activity;
  settled.has_paging = model_.has_paging;
  settled.realtime_at_0 = model_.realtime_at_0;
  settled.jobs = model_.jobs;
  settled.gpus = model_.gpus;
  std::map<std::pair<std::string, std::uint64_t>, std::int64_t> stays_from;
  for (Gang& gang : model_.gangs) {
    const std::pair key(gang.job_id, gang.id);
    constexpr std::size_t kMostInGap = 10'000;
    std::int64_t until = before_ns;
    if (const auto open = open_gaps_.find(key);
        open != open_gaps_.end() && open->second.start_ns < before_ns) {
      if (gang.slices.size() > kMostInGap) {
        ++cut_gaps_;
      } else {
        until = open->second.start_ns;
      }
    }
    const auto first_kept = std::find_if(gang.slices.begin(), gang.slices.end(),
                                         [&](const Slice& slice) { return slice.end_ns > until; });
    stays_from[key] = first_kept == gang.slices.end() ? until : first_kept->start_ns;
    if (first_kept == gang.slices.begin()) continue;
    Gang& its = settled.gangs.emplace_back(Gang{gang.job_id, gang.id, {}});
    its.slices.assign(std::move_iterator(gang.slices.begin()), std::move_iterator(first_kept));
    gang.slices =
        std::vector<Slice>(std::move_iterator(first_kept), std::move_iterator(gang.slices.end()));
  }
  settled.gaps = model_.gaps;
  if (!has_gap_records) gaps_from_idle_slices(settled);
  std::erase_if(model_.gaps, [&](const Gap& gap) {
    const auto its = stays_from.find({gap.job_id, gap.gang});
    return gap.end_ns <= (its == stays_from.end() ? before_ns : its->second);
  });
  first_new_gap_ = model_.gaps.size();
  const auto late =
      std::stable_partition(model_.swaps.begin(), model_.swaps.end(),
                            [&](const Swap& swap) { return swap.at_ns <= before_ns; });
  settled.swaps.assign(std::move_iterator(model_.swaps.begin()), std::move_iterator(late));
  model_.swaps.erase(model_.swaps.begin(), late);
  settled.paging = std::exchange(model_.paging, {});
  model_.memory.clear();
  model_.decisions.clear();
  std::erase_if(model_.processes, [](const Process& process) { return process.end_ns != 0; });
  return settled;
}

void ModelBuilder::take(std::int64_t at, const TraceRecord& record) {
  switch (record.record_case()) {
    case TraceRecord::kSession:
      return take_session(at, record.session());
    case TraceRecord::kLease:
      return take_lease(at, record.lease());
    case TraceRecord::kSwitch:
      model_.swaps.push_back({at, record.switch_()});
      return;
    case TraceRecord::kPaging:
      job_of(record.paging().job_id());
      model_.has_paging = true;
      model_.paging.push_back({at, record.paging()});
      return;
    case TraceRecord::kGap:
      return take_gap(record.gap());
    case TraceRecord::kMemory:
      return take_memory(at, record.memory());
    case TraceRecord::kError:
      model_.problems.push_back({at, record.error()});
      return;
    case TraceRecord::kDecision:
      model_.decisions.push_back({at, record.decision()});
      return;
    case TraceRecord::kClock:
      model_.realtime_at_0 = record.clock().realtime_ns() - at;
      return;
    case TraceRecord::kChunk:
      return;  // single chunks are not shown by any verb
    case TraceRecord::RECORD_NOT_SET:
      ++model_.unknown_records;
      return;
  }
}

void ModelBuilder::take_session(std::int64_t at, const SessionRecord& session) {
  if (!session.node().empty()) model_.node = session.node();
  switch (session.event()) {
    case SessionRecord::MANAGER_START:
      // What an earlier manager left open ended, as far as is known, with its last record.
      close_everything(model_.end_ns);
      return;
    case SessionRecord::GPU:
      return take_gpu(session);
    case SessionRecord::JOB_QUEUED:
      queued_since_.try_emplace(session.job_id(), at);
      return take_job(at, session);
    case SessionRecord::JOB_ADMITTED: {
      take_job(at, session);
      Job& job = job_of(session.job_id());
      if (!admitted_.insert(job.id).second) return;  // by the next manager, while it ran
      job.start_ns = at;
      if (const auto queued = queued_since_.find(session.job_id()); queued != queued_since_.end()) {
        job.queued_ns = at - queued->second;
      }
      return;
    }
    case SessionRecord::JOB_END:
      end_job(at, session.job_id());
      return;
    case SessionRecord::PROCESS_JOIN:
      job_of(session.job_id());
      model_.processes.push_back(
          {session.session(), session.pid(), session.job_id(), session.gang(), at, 0});
      return;
    case SessionRecord::PROCESS_GANG:
      return take_gang_of_process(at, session);
    case SessionRecord::PROCESS_END:
      end_process(at, session);
      return;
    default:
      return;
  }
}

void ModelBuilder::take_gpu(const SessionRecord& session) {
  Gpu& gpu = gpu_of(session.gpu_index());
  gpu.uuid = session.gpu_uuid();
  gpu.name = session.gpu_name();
  gpu.total_bytes = session.gpu_total_bytes();
  gpu.simulated = session.simulated();
  model_.simulated |= session.simulated();
}

void ModelBuilder::take_job(std::int64_t at, const SessionRecord& session) {
  Job& job = job_of(session.job_id());
  job.name = session.job_name();
  job.team = session.team();
  job.user = session.user();
  job.priority = session.priority();
  job.promised_bytes = session.promised_bytes();
  if (job.start_ns == 0) job.start_ns = at;
}

void ModelBuilder::end_job(std::int64_t at, const std::string& id) {
  Job& job = job_of(id);
  job.end_ns = at;
  end_queue(job);
  for (Gang& gang : model_.gangs) {
    if (gang.job_id == id) end_gang(gang, at);
  }
}

// Of a job that ended, or that the trace ends with, before it was admitted.
void ModelBuilder::end_queue(Job& job) {
  const auto queued = queued_since_.find(job.id);
  if (queued == queued_since_.end() || admitted_.contains(job.id)) return;
  job.queued_ns = job.end_ns - queued->second;
  job.start_ns = job.end_ns;
}

void ModelBuilder::take_gang_of_process(std::int64_t at, const SessionRecord& session) {
  for (Process& process : model_.processes) {
    if (process.session != session.session() || process.end_ns != 0) continue;
    process.gang = session.gang();
    process.gangs.emplace_back(at, session.gang());
  }
}

void ModelBuilder::end_process(std::int64_t at, const SessionRecord& session) {
  for (Process& process : model_.processes) {
    if (process.session == session.session() && process.end_ns == 0) process.end_ns = at;
  }
  // Its memory is gone with it.
  for (auto one = memory_.begin(); one != memory_.end();) {
    const auto [job_id, process, gpu] = one->first;
    if (process != session.session()) {
      ++one;
      continue;
    }
    one = memory_.erase(one);
    add_memory_point(at, job_id, gpu);
  }
}

void ModelBuilder::take_lease(std::int64_t at, const LeaseRecord& lease) {
  job_of(lease.job_id());
  Gang& gang = gang_of(lease.job_id(), lease.gang());
  close_gang(gang, at);
  for (std::uint64_t mask = lease.gpus_mask(); mask != 0; mask &= mask - 1) {
    gpu_of(static_cast<std::uint32_t>(__builtin_ctzll(mask)));
  }
  if (lease.state() == "gone") return end_gap(gang, at);
  gang.slices.push_back({at, kOpen, lease.state(), lease.gpus_mask(), lease.epoch().generation(),
                         lease.epoch().counter(), lease.reason()});
}

void ModelBuilder::take_gap(const GapRecord& record) {
  Gap gap{record.job_id(),
          record.gang(),
          static_cast<std::int64_t>(record.start_ns()),
          static_cast<std::int64_t>(record.end_ns()),
          record.cause(),
          record.lent(),
          {}};
  for (const GapCause& one : record.causes()) {
    gap.causes.push_back({one.cause(), one.detail(), static_cast<std::int64_t>(one.time_ns())});
  }
  model_.has_activity = true;
  open_gaps_.erase({gap.job_id, gap.gang});
  if (record.end_ns() == 0) {
    open_gaps_.insert({{gap.job_id, gap.gang}, gap});
  } else {
    model_.gaps.push_back(gap);
  }
}

// A gap that goes on lasts, as far as is known, until the gang is not seen any more.
void ModelBuilder::end_gap(const Gang& gang, std::int64_t at) {
  const auto open = open_gaps_.extract({gang.job_id, gang.id});
  if (open.empty()) return;
  Gap gap = open.mapped();
  gap.end_ns = std::max(at, gap.start_ns);
  model_.gaps.push_back(std::move(gap));
}

void ModelBuilder::take_memory(std::int64_t at, const MemoryRecord& memory) {
  job_of(memory.job_id());
  memory_[{memory.job_id(), memory.session(), memory.gpu_index()}] = memory;
  add_memory_point(at, memory.job_id(), memory.gpu_index());
}

void ModelBuilder::add_memory_point(std::int64_t at, const std::string& job_id, std::uint32_t gpu) {
  MemoryPoint point{at, job_id, gpu, 0, 0, 0, 0, 0};
  for (const auto& [key, memory] : memory_) {
    if (std::get<0>(key) != job_id || std::get<2>(key) != gpu) continue;
    point.resident_bytes += memory.resident_bytes();
    point.host_bytes += memory.host_bytes();
    point.disk_bytes += memory.disk_bytes();
    point.unbacked_bytes += memory.unbacked_bytes();
    point.unpageable_bytes += memory.unpageable_bytes();
  }
  model_.memory.push_back(point);
}

void ModelBuilder::close_gang(Gang& gang, std::int64_t at) {
  if (gang.slices.empty() || gang.slices.back().end_ns != kOpen) return;
  Slice& last = gang.slices.back();
  last.end_ns = std::max(at, last.start_ns);
  if (last.length_ns() == 0) gang.slices.pop_back();
}

void ModelBuilder::end_gang(Gang& gang, std::int64_t at) {
  close_gang(gang, at);
  end_gap(gang, at);
}

void ModelBuilder::close_everything(std::int64_t at) {
  for (Gang& gang : model_.gangs) end_gang(gang, at);
  for (Process& process : model_.processes) {
    if (process.end_ns == 0) process.end_ns = std::max(at, process.start_ns);
  }
  for (Job& job : model_.jobs) {
    if (job.end_ns != 0) continue;
    job.end_ns = std::max(at, job.start_ns);
    end_queue(job);
  }
}

void ModelBuilder::gaps_from_idle_slices(Model& model) {
  for (const Gang& gang : model.gangs) {
    for (const Slice& slice : gang.slices) {
      if (slice.state != "idle") continue;
      model.gaps.push_back(
          {gang.job_id, gang.id, slice.start_ns, slice.end_ns, slice.reason, false});
    }
  }
}

Job& ModelBuilder::job_of(const std::string& id) {
  const auto [found, is_new] = job_index_.try_emplace(id, model_.jobs.size());
  if (is_new) {
    Job& job = model_.jobs.emplace_back();
    job.id = id;
    job.start_ns = now_;
    return job;
  }
  Job& job = model_.jobs[found->second];
  if (job.end_ns != 0 && job.end_ns < now_) job.end_ns = 0;  // resumed by the next manager
  return job;
}

Gang& ModelBuilder::gang_of(const std::string& job_id, std::uint64_t id) {
  const auto [found, is_new] = gang_index_.try_emplace({job_id, id}, model_.gangs.size());
  if (is_new) model_.gangs.push_back(Gang{job_id, id, {}});
  return model_.gangs[found->second];
}

Gpu& ModelBuilder::gpu_of(std::uint32_t index) {
  for (Gpu& gpu : model_.gpus) {
    if (gpu.index == index) return gpu;
  }
  return model_.gpus.emplace_back(Gpu{index, "", "", 0, false});
}

}  // namespace plexrl::trace
