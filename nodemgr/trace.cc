#include "nodemgr/trace.h"

#include <time.h>

#include <algorithm>
#include <cstdio>

#include "nodemgr/clock.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/trace_segments.h"
#include "proto/segment.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::uint64_t kSegmentsKept = 16;  // so that pruning takes away a small part at a time
constexpr std::size_t kFlushRecords = 512;

std::string run_name(const std::string& node) {
  std::int64_t now = wall_now_ns();
  time_t seconds = now / 1'000'000'000;
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[64];
  std::snprintf(text, sizeof text, "%04d%02d%02dT%02d%02d%02d.%03dZ", utc.tm_year + 1900,
                utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                static_cast<int>(now / 1'000'000 % 1000));
  return cat(node, "-", text);
}

std::uint64_t segment_bytes(std::uint64_t max_bytes) {
  return std::clamp<std::uint64_t>(max_bytes / kSegmentsKept, 1 << 20, 64 << 20);
}

}  // namespace

struct TraceWriter::Buffer {
  explicit Buffer(TraceOptions given)
      : options(std::move(given)),
        segments(cat(options.folder, "/", run_name(options.node)),
                 segment_bytes(options.max_bytes)) {}

  trace::TraceRecord& next() {
    if (static_cast<std::size_t>(chunk.records_size()) >= kFlushRecords) write();
    trace::TraceRecord& record = *chunk.add_records();
    record.set_at_ns(static_cast<std::uint64_t>(boot_now().count()));
    return record;
  }

  void put_clock(trace::TraceRecord& record) {
    auto before = boot_now();
    record.mutable_clock()->set_realtime_ns(wall_now_ns());
    auto after = boot_now();
    record.set_at_ns(static_cast<std::uint64_t>((before + (after - before) / 2).count()));
    record.mutable_clock()->set_uncertainty_ns(
        static_cast<std::uint64_t>((after - before).count()));
  }

  absl::Status open_segment() {
    absl::Status status = segments.open_next();
    if (!status.ok()) return status;
    prune_segments(options.folder, options.max_bytes, options.max_age, segments.current_path());
    trace::TraceChunk anchor;
    put_clock(*anchor.add_records());
    return segments.append(trace::encode_frame(anchor));
  }

  void write() {
    if (chunk.records_size() == 0) return;
    absl::Status status = segments.wants_new_file() ? open_segment() : absl::OkStatus();
    if (status.ok()) status = segments.append(trace::encode_frame(chunk));
    if (!status.ok()) {
      lost += static_cast<std::uint64_t>(chunk.records_size());
      if (!told) log_line(LogLevel::kWarning, "trace", message_of(status) + ", losing records");
    } else if (told) {
      log_line(LogLevel::kInfo, "trace", cat("writes again, records lost: ", lost));
    }
    told = !status.ok();
    chunk.Clear();
  }

  TraceOptions options;
  TraceSegments segments;
  trace::TraceChunk chunk;
  std::uint64_t lost = 0;
  bool told = false;
};

TraceWriter::TraceWriter(TraceOptions options)
    : buffer_(std::make_unique<Buffer>(std::move(options))) {}

TraceWriter::~TraceWriter() { flush(); }

void TraceWriter::add(const TraceSession& r) {
  trace::SessionRecord& out = *buffer_->next().mutable_session();
  out.set_event(static_cast<trace::SessionRecord::Event>(r.event));
  out.set_node(buffer_->options.node);
  out.set_job_id(r.job_id);
  out.set_job_name(r.job_name);
  out.set_team(r.team);
  out.set_user(r.user);
  out.set_priority(r.priority);
  out.set_session(r.session);
  out.set_pid(r.pid);
  out.set_gang(r.gang);
  out.set_promised_bytes(r.promised_bytes);
  out.set_gpu_uuid(r.gpu_uuid);
  out.set_gpu_index(static_cast<std::uint32_t>(r.gpu_index));
  out.set_gpu_total_bytes(r.gpu_total_bytes);
  out.set_gpu_name(r.gpu_name);
  out.set_simulated(r.simulated);
  out.set_text(r.text);
}

void TraceWriter::add(const TraceLease& r) {
  trace::LeaseRecord& out = *buffer_->next().mutable_lease();
  out.set_job_id(r.job_id);
  out.set_gang(r.gang);
  out.set_state(r.state);
  out.mutable_epoch()->set_generation(r.epoch.generation);
  out.mutable_epoch()->set_counter(r.epoch.counter);
  out.set_gpus_mask(r.gpus);
  out.set_reason(r.reason);
}

void TraceWriter::add(const TraceSwitch& r) {
  trace::TraceRecord& record = buffer_->next();
  if (r.at_ns != 0) record.set_at_ns(r.at_ns);
  trace::SwitchRecord& out = *record.mutable_switch_();
  out.set_gpu_index(static_cast<std::uint32_t>(r.gpu));
  out.set_out_job_id(r.out_job);
  out.set_out_gang(r.out_gang);
  out.set_in_job_id(r.in_job);
  out.set_in_gang(r.in_gang);
  out.set_reason(r.reason);
  out.set_needed_bytes(r.needed_bytes);
  out.set_out_bytes(r.out_bytes);
  out.set_in_bytes(r.in_bytes);
  out.set_untouched_bytes(r.untouched_bytes);
  out.set_repeated_bytes(r.repeated_bytes);
  out.set_unchanged_bytes(r.unchanged_bytes);
  out.set_shared_bytes(r.shared_bytes);
  out.set_decided_at_ns(r.decided_at_ns);
  out.set_drain_ns(r.drain_ns);
  out.set_evict_ns(r.evict_ns);
  out.set_evict_copy_ns(r.evict_copy_ns);
  out.set_evict_hash_ns(r.evict_hash_ns);
  out.set_evict_unmap_ns(r.evict_unmap_ns);
  out.set_load_ns(r.load_ns);
  out.set_load_create_ns(r.load_create_ns);
  out.set_load_map_ns(r.load_map_ns);
  out.set_load_copy_ns(r.load_copy_ns);
  out.set_load_blocked_ns(r.load_blocked_ns);
  out.set_out_disk_bytes(r.out_disk_bytes);
  out.set_in_disk_bytes(r.in_disk_bytes);
  out.set_evict_disk_ns(r.evict_disk_ns);
  out.set_load_disk_ns(r.load_disk_ns);
  const std::uint64_t moving_ns = r.evict_ns + r.load_ns;
  if (r.link_ns != 0 && moving_ns != 0) {
    const double share = static_cast<double>(r.link_ns) / static_cast<double>(moving_ns);
    out.set_link_ratio(std::min(share, 1.0));
  }
}

void TraceWriter::add(const TracePaging& r) {
  trace::PagingRecord& out = *buffer_->next().mutable_paging();
  out.set_kind(static_cast<trace::PagingRecord::Kind>(r.kind));
  out.set_job_id(r.job_id);
  out.set_gang(r.gang);
  out.set_session(r.session);
  out.set_pid(r.pid);
  out.set_gpus_mask(r.gpus);
  out.mutable_epoch()->set_generation(r.epoch.generation);
  out.mutable_epoch()->set_counter(r.epoch.counter);
  out.set_outcome(r.outcome);
  out.set_asked_ns(r.asked_ns);
  out.set_start_ns(r.start_ns);
  out.set_end_ns(r.end_ns);
  out.set_out_bytes(r.out_bytes);
  out.set_in_bytes(r.in_bytes);
  out.set_untouched_bytes(r.untouched_bytes);
  out.set_repeated_bytes(r.repeated_bytes);
  out.set_unchanged_bytes(r.unchanged_bytes);
  out.set_hash_ns(r.hash_ns);
  out.set_link_ns(r.link_ns);
  out.set_disk_bytes(r.disk_bytes);
  out.set_disk_ns(r.disk_ns);
}

void TraceWriter::add(const TraceGap& r) {
  trace::GapRecord& out = *buffer_->next().mutable_gap();
  out.set_job_id(r.job_id);
  out.set_gang(r.gang);
  out.set_start_ns(r.start_ns);
  out.set_end_ns(r.end_ns);
  out.set_lent(r.lent);
  out.set_cause(main_cause(r.causes));
  for (const GapCause& cause : r.causes) {
    trace::GapCause& one = *out.add_causes();
    one.set_cause(cause.cause);
    one.set_detail(cause.detail);
    one.set_time_ns(static_cast<std::uint64_t>(cause.time.count()));
  }
}

void TraceWriter::add(const TraceDecision& r) {
  trace::DecisionRecord& out = *buffer_->next().mutable_decision();
  out.set_kind(r.kind);
  out.set_job_id(r.job_id);
  out.set_gang(r.gang);
  out.set_gpus_mask(r.gpus);
  out.set_reason(r.reason);
  for (const policy::Figure& figure : r.figures) {
    trace::Figure& to = *out.add_figures();
    to.set_name(figure.name);
    to.set_value(figure.value);
  }
}

void TraceWriter::add(const TraceMemory& r) {
  trace::MemoryRecord& out = *buffer_->next().mutable_memory();
  out.set_job_id(r.job_id);
  out.set_session(r.session);
  out.set_gang(r.gang);
  out.set_gpu_index(static_cast<std::uint32_t>(r.gpu));
  out.set_resident_bytes(r.resident_bytes);
  out.set_host_bytes(r.host_bytes);
  out.set_unbacked_bytes(r.unbacked_bytes);
  out.set_unpageable_bytes(r.unpageable_bytes);
  out.set_disk_bytes(r.disk_bytes);
}

void TraceWriter::add(const TraceError& r) {
  trace::ErrorRecord& out = *buffer_->next().mutable_error();
  out.set_job_id(r.job_id);
  out.set_session(r.session);
  out.set_what(r.what);
  out.set_text(r.text);
}

void TraceWriter::add_clock() { buffer_->put_clock(buffer_->next()); }

void TraceWriter::flush() { buffer_->write(); }
bool TraceWriter::is_dirty() const { return buffer_->chunk.records_size() != 0; }
const std::string& TraceWriter::run_folder() const { return buffer_->segments.run_folder(); }
std::uint64_t TraceWriter::lost_records() const { return buffer_->lost; }

void TraceWriter::set_limits(std::uint64_t max_bytes, std::chrono::seconds max_age) {
  buffer_->options.max_bytes = max_bytes;
  buffer_->options.max_age = max_age;
}

}  // namespace plexrl::nodemgr
