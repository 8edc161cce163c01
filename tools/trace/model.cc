#include "tools/trace/model.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "tools/cli/format.h"

namespace plexrl::trace {
namespace {

class Builder {
 public:
  Model build(const RawTrace& trace) {
    for (const TraceRecord& record : trace.records) {
      const auto at = static_cast<std::int64_t>(record.at_ns());
      if (model_.start_ns == 0) model_.start_ns = at;
      now_ = at;
      take(at, record);
      model_.end_ns = std::max(model_.end_ns, at);
    }
    close_everything(model_.end_ns);
    std::stable_sort(model_.swaps.begin(), model_.swaps.end(),
                     [](const Swap& a, const Swap& b) { return a.at_ns < b.at_ns; });
    if (!model_.gpus.empty()) {
      std::sort(model_.gpus.begin(), model_.gpus.end(),
                [](const Gpu& a, const Gpu& b) { return a.index < b.index; });
    }
    gaps_from_idle_slices();
    return std::move(model_);
  }

 private:
  void take(std::int64_t at, const TraceRecord& record) {
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

  void take_session(std::int64_t at, const SessionRecord& session) {
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
        if (const auto queued = queued_since_.find(session.job_id());
            queued != queued_since_.end()) {
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

  void take_gpu(const SessionRecord& session) {
    Gpu& gpu = gpu_of(session.gpu_index());
    gpu.uuid = session.gpu_uuid();
    gpu.name = session.gpu_name();
    gpu.total_bytes = session.gpu_total_bytes();
    gpu.simulated = session.simulated();
    model_.simulated |= session.simulated();
  }

  void take_job(std::int64_t at, const SessionRecord& session) {
    Job& job = job_of(session.job_id());
    job.name = session.job_name();
    job.team = session.team();
    job.user = session.user();
    job.priority = session.priority();
    job.promised_bytes = session.promised_bytes();
    if (job.start_ns == 0) job.start_ns = at;
  }

  void end_job(std::int64_t at, const std::string& id) {
    Job& job = job_of(id);
    job.end_ns = at;
    end_queue(job);
    for (Gang& gang : model_.gangs) {
      if (gang.job_id == id) end_gang(gang, at);
    }
  }

  // Of a job that ended, or that the trace ends with, before it was admitted.
  void end_queue(Job& job) {
    const auto queued = queued_since_.find(job.id);
    if (queued == queued_since_.end() || admitted_.contains(job.id)) return;
    job.queued_ns = job.end_ns - queued->second;
    job.start_ns = job.end_ns;
  }

  void take_gang_of_process(std::int64_t at, const SessionRecord& session) {
    for (Process& process : model_.processes) {
      if (process.session != session.session() || process.end_ns != 0) continue;
      process.gang = session.gang();
      process.gangs.emplace_back(at, session.gang());
    }
  }

  void end_process(std::int64_t at, const SessionRecord& session) {
    for (Process& process : model_.processes) {
      if (process.session == session.session() && process.end_ns == 0) process.end_ns = at;
    }
    // Its memory is gone with it.
    for (auto& [key, memory] : memory_) {
      if (std::get<1>(key) != session.session()) continue;
      memory = {};
      add_memory_point(at, std::get<0>(key), std::get<2>(key));
    }
  }

  void take_lease(std::int64_t at, const LeaseRecord& lease) {
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

  void take_gap(const GapRecord& record) {
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
  void end_gap(const Gang& gang, std::int64_t at) {
    const auto open = open_gaps_.extract({gang.job_id, gang.id});
    if (open.empty()) return;
    Gap gap = open.mapped();
    gap.end_ns = std::max(at, gap.start_ns);
    model_.gaps.push_back(std::move(gap));
  }

  void take_memory(std::int64_t at, const MemoryRecord& memory) {
    job_of(memory.job_id());
    memory_[{memory.job_id(), memory.session(), memory.gpu_index()}] = memory;
    add_memory_point(at, memory.job_id(), memory.gpu_index());
  }

  void add_memory_point(std::int64_t at, const std::string& job_id, std::uint32_t gpu) {
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

  static void close_gang(Gang& gang, std::int64_t at) {
    if (gang.slices.empty() || gang.slices.back().end_ns != kOpen) return;
    Slice& last = gang.slices.back();
    last.end_ns = std::max(at, last.start_ns);
    if (last.length_ns() == 0) gang.slices.pop_back();
  }

  void end_gang(Gang& gang, std::int64_t at) {
    close_gang(gang, at);
    end_gap(gang, at);
  }

  void close_everything(std::int64_t at) {
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

  void gaps_from_idle_slices() {
    std::set<std::pair<std::string, std::uint64_t>> recorded;
    for (const Gap& gap : model_.gaps) recorded.emplace(gap.job_id, gap.gang);
    for (const Gang& gang : model_.gangs) {
      if (recorded.contains({gang.job_id, gang.id})) continue;
      for (const Slice& slice : gang.slices) {
        if (slice.state != "idle") continue;
        model_.gaps.push_back(
            {gang.job_id, gang.id, slice.start_ns, slice.end_ns, slice.reason, false});
      }
    }
  }

  Job& job_of(const std::string& id) {
    for (Job& job : model_.jobs) {
      if (job.id == id) {
        if (job.end_ns != 0 && job.end_ns < now_) job.end_ns = 0;  // resumed by the next manager
        return job;
      }
    }
    Job& job = model_.jobs.emplace_back();
    job.id = id;
    job.start_ns = now_;
    return job;
  }

  Gang& gang_of(const std::string& job_id, std::uint64_t id) {
    for (Gang& gang : model_.gangs) {
      if (gang.job_id == job_id && gang.id == id) return gang;
    }
    return model_.gangs.emplace_back(Gang{job_id, id, {}});
  }

  Gpu& gpu_of(std::uint32_t index) {
    for (Gpu& gpu : model_.gpus) {
      if (gpu.index == index) return gpu;
    }
    return model_.gpus.emplace_back(Gpu{index, "", "", 0, false});
  }

  static constexpr std::int64_t kOpen = INT64_MAX;

  Model model_;
  std::int64_t now_ = 0;
  std::map<std::string, std::int64_t> queued_since_;
  std::set<std::string> admitted_;
  std::map<std::pair<std::string, std::uint64_t>, Gap> open_gaps_;  ///< by job and gang
  std::map<std::tuple<std::string, std::uint64_t, std::uint32_t>, MemoryRecord> memory_;
};

}  // namespace

std::vector<CauseTime> causes_of(const Gap& gap) {
  double told = 0;
  for (const CauseTime& one : gap.causes) told += static_cast<double>(one.time_ns);
  if (told <= 0 || gap.length_ns() <= 0)
    return {{gap.cause.empty() ? "unknown" : gap.cause, "", gap.length_ns()}};
  const double scale = static_cast<double>(gap.length_ns()) / told;
  std::vector<CauseTime> causes = gap.causes;
  std::int64_t left = gap.length_ns();
  for (CauseTime& one : causes) {
    one.time_ns = static_cast<std::int64_t>(static_cast<double>(one.time_ns) * scale);
    one.time_ns = std::clamp<std::int64_t>(one.time_ns, 0, left);
    left -= one.time_ns;
  }
  causes.front().time_ns += left;  // what rounding has lost
  std::erase_if(causes, [](const CauseTime& one) { return one.time_ns == 0; });
  return causes;
}

Model build_model(const RawTrace& trace) { return Builder().build(trace); }

const Job* Model::find_job(const std::string& id) const {
  const auto found =
      std::find_if(jobs.begin(), jobs.end(), [&](const Job& job) { return job.id == id; });
  return found == jobs.end() ? nullptr : &*found;
}

std::string Model::job_name(const std::string& id) const {
  const Job* job = find_job(id);
  return job && !job->name.empty() ? job->name : id.substr(0, 8);
}

std::vector<const Gang*> Model::gangs_of(const std::string& job_id) const {
  std::vector<const Gang*> found;
  for (const Gang& gang : gangs) {
    if (gang.job_id == job_id) found.push_back(&gang);
  }
  return found;
}

std::optional<std::string> Model::wall_time(std::int64_t at_ns) const {
  if (!realtime_at_0) return std::nullopt;
  return cli::format_rfc3339(*realtime_at_0 + at_ns);
}

Pieces merge(Pieces pieces) {
  std::sort(pieces.begin(), pieces.end());
  Pieces merged;
  for (const auto& piece : pieces) {
    if (piece.first >= piece.second) continue;
    if (!merged.empty() && piece.first <= merged.back().second) {
      merged.back().second = std::max(merged.back().second, piece.second);
    } else {
      merged.push_back(piece);
    }
  }
  return merged;
}

Pieces subtract(const Pieces& from, const Pieces& what) {
  Pieces left;
  auto cut = what.begin();
  for (auto [begin, end] : from) {
    while (cut != what.end() && cut->second <= begin) ++cut;
    for (auto next = cut; next != what.end() && next->first < end; ++next) {
      if (next->first > begin) left.emplace_back(begin, next->first);
      begin = std::max(begin, next->second);
    }
    if (begin < end) left.emplace_back(begin, end);
  }
  return left;
}

Pieces common(const Pieces& a, const Pieces& b) { return subtract(a, subtract(a, b)); }

std::int64_t total_ns(const Pieces& pieces) {
  std::int64_t total = 0;
  for (const auto& [begin, end] : pieces) total += end - begin;
  return total;
}

}  // namespace plexrl::trace
