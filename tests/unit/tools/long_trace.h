#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "proto/trace.pb.h"

namespace plexrl::trace {

/// A trace of any length, as a node manager with several GPUs and jobs that take turns on them
/// would write it: gaps that are told when they begin and again, with causes, after they have
/// ended; switches and gaps that are told some time after later things were; jobs that come and go.
/// The same seed gives the same records.
///
///   LongTrace trace(1);
///   while (many) use(trace.next());
class LongTrace {
 public:
  static constexpr int kGpus = 4, kJobsOnGpu = 3;

  explicit LongTrace(unsigned seed) : random_(seed) {
    SessionRecord* start = add().mutable_session();
    start->set_event(SessionRecord::MANAGER_START);
    start->set_node("long");
    add().mutable_clock()->set_realtime_ns(kWallNs);
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      SessionRecord* session = add().mutable_session();
      session->set_event(SessionRecord::GPU);
      session->set_gpu_index(static_cast<std::uint32_t>(gpu));
      session->set_gpu_uuid("GPU-" + std::to_string(gpu));
      session->set_gpu_name("Model");
      session->set_gpu_total_bytes(std::uint64_t{1} << 36);
      session->set_simulated(true);
      for (int job = 0; job < kJobsOnGpu; ++job) gpus_[gpu].jobs.push_back(begin_job(gpu));
    }
  }

  TraceRecord next() {
    while (ready_.empty()) step();
    TraceRecord record = std::move(ready_.front());
    ready_.erase(ready_.begin());
    return record;
  }

 private:
  static constexpr std::int64_t kWallNs = 1'790'000'000'000'000'000;
  static constexpr std::uint64_t kMs = 1'000'000;

  struct Job {
    std::string id;
    std::uint64_t gang = 0, gpu = 0, gap_since_ns = 0;
  };
  struct Gpu {
    std::vector<Job> jobs;
    std::size_t holder = 0;
    std::uint64_t counter = 0;
  };

  std::uint64_t draw(std::uint64_t from, std::uint64_t to) {
    return std::uniform_int_distribution<std::uint64_t>(from, to)(random_);
  }
  void wait() { now_ns_ += draw(1, 5 * kMs); }

  // Given out at once, in this order.
  TraceRecord& add() {
    TraceRecord& record = ready_.emplace_back();
    record.set_at_ns(now_ns_);
    return record;
  }
  // Given out when `late_ns` have gone by.
  TraceRecord& add_later(std::uint64_t late_ns) {
    TraceRecord& record = later_.emplace(now_ns_ + late_ns, TraceRecord())->second;
    record.set_at_ns(now_ns_);
    return record;
  }

  Job begin_job(int gpu) {
    Job job{"job" + std::to_string(++jobs_), ++gangs_, static_cast<std::uint64_t>(gpu)};
    job.id.resize(kIdDigits, 'x');
    SessionRecord* session = add().mutable_session();
    session->set_event(SessionRecord::JOB_ADMITTED);
    session->set_job_id(job.id);
    session->set_job_name("train-" + std::to_string(jobs_ % 7));
    session->set_user("ann");
    SessionRecord* process = add().mutable_session();
    process->set_event(SessionRecord::PROCESS_JOIN);
    process->set_job_id(job.id);
    process->set_session(job.gang);
    process->set_pid(static_cast<std::int64_t>(1000 + job.gang));
    process->set_gang(job.gang);
    lease(job, "idle", 0);
    return job;
  }

  void end_job(const Job& job) {
    lease(job, "gone", 0);
    SessionRecord* process = add().mutable_session();
    process->set_event(SessionRecord::PROCESS_END);
    process->set_job_id(job.id);
    process->set_session(job.gang);
    SessionRecord* session = add().mutable_session();
    session->set_event(SessionRecord::JOB_END);
    session->set_job_id(job.id);
  }

  void lease(const Job& job, const char* state, std::uint64_t counter) {
    LeaseRecord* lease = add().mutable_lease();
    lease->set_job_id(job.id);
    lease->set_gang(job.gang);
    lease->set_state(state);
    lease->set_gpus_mask(std::uint64_t{1} << job.gpu);
    if (counter == 0) return;
    lease->mutable_epoch()->set_generation(1);
    lease->mutable_epoch()->set_counter(counter);
  }

  void begin_gap(Job& job) {
    job.gap_since_ns = now_ns_ - std::min(now_ns_, std::uint64_t{1});
    GapRecord* gap = add().mutable_gap();
    gap->set_job_id(job.id);
    gap->set_gang(job.gang);
    gap->set_start_ns(job.gap_since_ns);
  }

  // Told when the observer has answered.
  void end_gap(Job& job) {
    if (job.gap_since_ns == 0) return;
    GapRecord* gap = add_later(draw(0, kLatestMs * kMs)).mutable_gap();
    gap->set_job_id(job.id);
    gap->set_gang(job.gang);
    gap->set_start_ns(job.gap_since_ns);
    gap->set_end_ns(now_ns_);
    gap->set_cause("network");
    const std::uint64_t length_ns = now_ns_ - job.gap_since_ns;
    const std::pair<const char*, const char*> causes[] = {{"network", "10.0.0.3:80"},
                                                          {"cpu", "python"}};
    for (const auto& [cause, detail] : causes) {
      GapCause* one = gap->add_causes();
      one->set_cause(cause);
      one->set_detail(detail);
      one->set_time_ns(length_ns / (cause[0] == 'n' ? 2 : 3));
    }
    job.gap_since_ns = 0;
  }

  void decide(const char* kind, const Job& job) {
    DecisionRecord* decision = add().mutable_decision();
    decision->set_kind(kind);
    decision->set_job_id(job.id);
    decision->set_gang(job.gang);
    decision->set_gpus_mask(std::uint64_t{1} << job.gpu);
    decision->set_reason("the holder is in a gap");
    for (const char* name : {"expected_gap_ns", "switch_cost_ns"}) {
      Figure* figure = decision->add_figures();
      figure->set_name(name);
      figure->set_value(static_cast<double>(draw(1, 1000 * kMs)));
    }
  }

  void page(PagingRecord::Kind kind, const Job& job, std::uint64_t counter) {
    PagingRecord* paging = add().mutable_paging();
    paging->set_kind(kind);
    paging->set_job_id(job.id);
    paging->set_gang(job.gang);
    paging->set_session(job.gang);
    paging->set_gpus_mask(std::uint64_t{1} << job.gpu);
    paging->mutable_epoch()->set_generation(1);
    paging->mutable_epoch()->set_counter(counter);
    paging->set_outcome("done");
    const std::uint64_t bytes = draw(1, std::uint64_t{1} << 34);
    kind == PagingRecord::EVICT ? paging->set_out_bytes(bytes) : paging->set_in_bytes(bytes);
    paging->set_untouched_bytes(bytes / 3);
  }

  void tell_memory(const Job& job, std::uint64_t resident_bytes) {
    MemoryRecord* memory = add().mutable_memory();
    memory->set_job_id(job.id);
    memory->set_session(job.gang);
    memory->set_gpu_index(static_cast<std::uint32_t>(job.gpu));
    memory->set_resident_bytes(resident_bytes);
  }

  // One GPU goes from its holder to another job.
  void step() {
    Gpu& gpu = gpus_[draw(0, kGpus - 1)];
    Job& out = gpu.jobs[gpu.holder];
    gpu.holder = (gpu.holder + draw(1, kJobsOnGpu - 1)) % kJobsOnGpu;
    Job& in = gpu.jobs[gpu.holder];
    wait();
    if (draw(0, 3) != 0 && out.gap_since_ns == 0) begin_gap(out);
    wait();
    end_gap(in);
    lease(in, "waiting", 0);
    decide("withdraw", out);
    const std::uint64_t decided_ns = now_ns_;
    lease(out, "draining", gpu.counter);
    wait();
    lease(out, out.gap_since_ns != 0 ? "idle" : "waiting", 0);
    page(PagingRecord::EVICT, out, gpu.counter);
    tell_memory(out, 0);
    lease(in, "loading", ++gpu.counter);
    wait();
    page(PagingRecord::LOAD, in, gpu.counter);
    tell_memory(in, std::uint64_t{1} << 34);
    lease(in, "running", gpu.counter);
    SwitchRecord* change = add_later(draw(0, kLatestMs * kMs)).mutable_switch_();
    change->set_gpu_index(static_cast<std::uint32_t>(in.gpu));
    change->set_out_job_id(out.id);
    change->set_out_gang(out.gang);
    change->set_in_job_id(in.id);
    change->set_in_gang(in.gang);
    change->set_reason("the holder is in a gap");
    change->set_decided_at_ns(decided_ns);
    change->set_shared_bytes(draw(0, 1000));
    if (draw(0, kStepsAJob) == 0) {
      end_gap(out);
      end_job(out);
      out = begin_job(static_cast<int>(in.gpu));
    }
    for (auto record = later_.begin(); record != later_.end() && record->first <= now_ns_;) {
      ready_.push_back(std::move(record->second));
      record = later_.erase(record);
    }
  }

  static constexpr std::size_t kIdDigits = 32;
  static constexpr std::uint64_t kLatestMs = 300, kStepsAJob = 300;

  std::mt19937_64 random_;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::uint64_t jobs_ = 0, gangs_ = 0;
  Gpu gpus_[kGpus];
  std::vector<TraceRecord> ready_;
  std::multimap<std::uint64_t, TraceRecord> later_;  ///< by when they are told
};

}  // namespace plexrl::trace
