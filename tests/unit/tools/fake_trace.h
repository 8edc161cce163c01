#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "proto/segment.h"
#include "tools/trace/model.h"

namespace plexrl::trace {

/// A trace written by hand, with times in ms from 1 s after boot.
///
///   FakeTrace trace;
///   trace.job("a", 0).lease("a", 1, "running", 0, 1).lease("a", 1, "idle", 50);
class FakeTrace {
 public:
  static constexpr std::int64_t kStart = 1'000'000'000;
  static constexpr std::int64_t ms(std::int64_t t) { return kStart + t * 1'000'000; }

  FakeTrace& gpu(std::uint32_t index, bool simulated = true) {
    SessionRecord* session = add(0)->mutable_session();
    session->set_event(SessionRecord::GPU);
    session->set_node("n1");
    session->set_gpu_index(index);
    session->set_gpu_uuid("GPU-" + std::to_string(index));
    session->set_gpu_name("Model");
    session->set_gpu_total_bytes(1 << 30);
    session->set_simulated(simulated);
    return *this;
  }
  FakeTrace& job_event(SessionRecord::Event event, const std::string& id, std::int64_t at) {
    SessionRecord* session = add(at)->mutable_session();
    session->set_event(event);
    session->set_job_id(id);
    session->set_job_name("job-" + id);
    session->set_user("me");
    return *this;
  }
  FakeTrace& job(const std::string& id, std::int64_t at) {
    return job_event(SessionRecord::JOB_ADMITTED, id, at);
  }
  FakeTrace& job_end(const std::string& id, std::int64_t at) {
    return job_event(SessionRecord::JOB_END, id, at);
  }
  FakeTrace& lease(const std::string& job, std::uint64_t gang, const std::string& state,
                   std::int64_t at, std::uint64_t gpus = 1, std::uint64_t counter = 0) {
    LeaseRecord* lease = add(at)->mutable_lease();
    lease->set_job_id(job);
    lease->set_gang(gang);
    lease->set_state(state);
    lease->set_gpus_mask(gpus);
    if (counter) {
      lease->mutable_epoch()->set_generation(1);
      lease->mutable_epoch()->set_counter(counter);
    }
    return *this;
  }
  /// `to` = 0: it is not over when it is told.
  FakeTrace& gap(const std::string& job, std::uint64_t gang, std::int64_t from, std::int64_t to,
                 const std::string& cause) {
    GapRecord* gap = add(to == 0 ? from : to)->mutable_gap();
    gap->set_job_id(job);
    gap->set_gang(gang);
    gap->set_start_ns(static_cast<std::uint64_t>(ms(from)));
    gap->set_end_ns(to == 0 ? 0 : static_cast<std::uint64_t>(ms(to)));
    gap->set_cause(cause);
    return *this;
  }
  /// Of the gap that was added last, so many ns are due to this.
  FakeTrace& due_to(const std::string& cause, const std::string& detail, std::uint64_t ns) {
    GapCause* one = chunk_.mutable_records(chunk_.records_size() - 1)->mutable_gap()->add_causes();
    one->set_cause(cause);
    one->set_detail(detail);
    one->set_time_ns(ns);
    return *this;
  }
  FakeTrace& memory(const std::string& job, std::uint64_t session, std::int64_t at,
                    std::uint64_t resident) {
    MemoryRecord* memory = add(at)->mutable_memory();
    memory->set_job_id(job);
    memory->set_session(session);
    memory->set_resident_bytes(resident);
    return *this;
  }
  /// A window of process `session` from `from` to `to` (0: not known); asked and told right then.
  FakeTrace& paging(PagingRecord::Kind kind, const std::string& job, std::uint64_t session,
                    std::int64_t from, std::int64_t to, std::uint64_t bytes) {
    PagingRecord* paging = add(std::max(from, to))->mutable_paging();
    paging->set_kind(kind);
    paging->set_job_id(job);
    paging->set_gang(1);
    paging->set_session(session);
    paging->set_pid(static_cast<std::int64_t>(session) + 1000);
    paging->set_gpus_mask(1);
    paging->mutable_epoch()->set_generation(1);
    paging->mutable_epoch()->set_counter(4);
    paging->set_outcome(to == 0 ? "lost" : "done");
    paging->set_asked_ns(static_cast<std::uint64_t>(ms(from)));
    paging->set_start_ns(static_cast<std::uint64_t>(ms(from)));
    paging->set_end_ns(to == 0 ? 0 : static_cast<std::uint64_t>(ms(to)));
    (kind == PagingRecord::EVICT ? paging->set_out_bytes(bytes) : paging->set_in_bytes(bytes));
    return *this;
  }
  FakeTrace& process(SessionRecord::Event event, const std::string& job, std::uint64_t session,
                     std::int64_t at, std::uint64_t gang = 0) {
    SessionRecord* record = add(at)->mutable_session();
    record->set_event(event);
    record->set_job_id(job);
    record->set_session(session);
    record->set_pid(static_cast<std::int64_t>(session) + 1000);
    record->set_gang(gang);
    return *this;
  }
  FakeTrace& clock(std::int64_t at, std::int64_t realtime_ns) {
    add(at)->mutable_clock()->set_realtime_ns(realtime_ns);
    return *this;
  }
  /// The next record's body is the caller's.
  TraceRecord* add(std::int64_t at) {
    TraceRecord* record = chunk_.add_records();
    record->set_at_ns(static_cast<std::uint64_t>(ms(at)));
    return record;
  }

  const TraceChunk& chunk() const { return chunk_; }
  Model model() const {
    RawTrace raw;
    raw.records.assign(chunk_.records().begin(), chunk_.records().end());
    return build_model(raw);
  }

 private:
  TraceChunk chunk_;
};

/// A folder of its own that goes with the test.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = std::filesystem::temp_directory_path() / "plexrl-trace-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }

  std::string path(const std::string& name = "") const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

}  // namespace plexrl::trace
