#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nodemgr/gap_causes.h"
#include "nodemgr/policy/types.h"
#include "shim/wire.h"

/// What happened on this node, as records of proto/trace.proto, in files that plexrl-trace reads.
namespace plexrl::nodemgr {

struct TraceSession {
  enum class Event {
    kManagerStart = 1,
    kManagerStop,
    kJobQueued,
    kJobAdmitted,
    kJobEnd,
    kProcessJoin,
    kProcessEnd,
    kGpu,
    kProcessGang,
  };
  Event event{};
  std::string job_id, job_name, team, user;
  int priority = 0;
  std::uint64_t session = 0;
  std::int64_t pid = 0;
  std::uint64_t gang = 0;
  std::uint64_t promised_bytes = 0;
  std::string gpu_uuid, gpu_name;
  int gpu_index = 0;
  std::uint64_t gpu_total_bytes = 0;
  bool simulated = false;
  std::string text;
};

struct TraceLease {
  std::string job_id;
  std::uint64_t gang = 0;
  std::string state;
  wire::Epoch epoch{};
  std::uint64_t gpus = 0;
  std::string reason;
};

struct TraceSwitch {
  std::uint64_t at_ns = 0;  ///< 0: now
  int gpu = 0;
  std::string out_job, in_job;
  std::uint64_t out_gang = 0, in_gang = 0;
  std::string reason;
  std::uint64_t needed_bytes = 0, out_bytes = 0, in_bytes = 0;
  std::uint64_t untouched_bytes = 0, repeated_bytes = 0, unchanged_bytes = 0, shared_bytes = 0;
  std::uint64_t decided_at_ns = 0, drain_ns = 0;
  std::uint64_t evict_ns = 0, evict_copy_ns = 0, evict_hash_ns = 0, evict_unmap_ns = 0;
  std::uint64_t load_ns = 0, load_create_ns = 0, load_map_ns = 0, load_copy_ns = 0;
  std::uint64_t load_blocked_ns = 0;
  std::uint64_t out_disk_bytes = 0, in_disk_bytes = 0, evict_disk_ns = 0, load_disk_ns = 0;
  std::uint64_t link_ns = 0;  ///< that the copies take at the best rate that their processes saw
};

/// One process moved memory; what the times mean is told in trace.proto.
struct TracePaging {
  enum class Kind { kEvict = 1, kLoad, kPrefetch };
  Kind kind{};
  std::string job_id;
  std::uint64_t gang = 0, session = 0;
  std::int64_t pid = 0;
  std::uint64_t gpus = 0;
  wire::Epoch epoch{};
  std::string outcome;
  std::uint64_t asked_ns = 0, start_ns = 0, end_ns = 0;
  std::uint64_t out_bytes = 0, in_bytes = 0;
  std::uint64_t untouched_bytes = 0, repeated_bytes = 0, unchanged_bytes = 0;
  std::uint64_t hash_ns = 0, link_ns = 0;
  std::uint64_t disk_bytes = 0, disk_ns = 0;
};

struct TraceGap {
  std::string job_id;
  std::uint64_t gang = 0;
  std::uint64_t start_ns = 0, end_ns = 0;  ///< end 0: not over yet
  bool lent = false;
  GapCauses causes;
};

struct TraceDecision {
  std::string kind, job_id;
  std::uint64_t gang = 0;
  std::uint64_t gpus = 0;
  std::string reason;
  std::vector<policy::Figure> figures;
};

struct TraceMemory {
  std::string job_id;
  std::uint64_t session = 0, gang = 0;
  int gpu = 0;
  std::uint64_t resident_bytes = 0, host_bytes = 0, unbacked_bytes = 0, unpageable_bytes = 0;
  std::uint64_t disk_bytes = 0;
};

struct TraceError {
  std::string job_id;
  std::uint64_t session = 0;
  std::string what;  ///< a stable word
  std::string text;
};

/// Where the files go and how much of them is kept.
struct TraceOptions {
  std::string folder;  ///< …/trace; a run makes `<node>-<start>/000000.plxt`, … in it
  std::string node;
  std::uint64_t max_bytes = 1 << 30;  ///< of all runs; oldest segments go first
  std::chrono::seconds max_age{30 * 86400};
};

/// Buffers records and writes them as checksummed zstd frames. A disk that is full or read-only
/// loses records, says so once, and hinders nothing. One thread.
class TraceWriter {
 public:
  explicit TraceWriter(TraceOptions options);
  ~TraceWriter();  ///< flushes

  void add(const TraceSession& record);
  void add(const TraceLease& record);
  void add(const TraceSwitch& record);
  void add(const TracePaging& record);
  void add(const TraceGap& record);
  void add(const TraceDecision& record);
  void add(const TraceMemory& record);
  void add(const TraceError& record);
  /// Anchors boot time to wall time; also done at the start of each segment.
  void add_clock();

  /// Writes what is buffered. The daemon calls it at least every second while `is_dirty`.
  void flush();
  bool is_dirty() const;
  const std::string& run_folder() const;
  std::uint64_t lost_records() const;
  void set_limits(std::uint64_t max_bytes, std::chrono::seconds max_age);

 private:
  struct Buffer;  // keeps protobuf out of this header
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace plexrl::nodemgr
