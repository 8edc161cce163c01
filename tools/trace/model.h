#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/reader.h"

/// What happened, put together from a trace's records: who was in which state from when to when.
/// Times are CLOCK_BOOTTIME in ns, as in the trace.
namespace plexrl::trace {

/// A stretch of one state of one gang.
struct Slice {
  std::int64_t start_ns;
  std::int64_t end_ns;
  std::string state;  ///< queued idle waiting loading running draining paused, or one we don't know
  std::uint64_t gpus_mask;
  std::uint64_t generation, counter;  ///< the lease's epoch; 0, 0: none
  std::string reason;

  std::int64_t length_ns() const { return end_ns - start_ns; }
};

struct Gang {
  std::string job_id;
  std::uint64_t id;
  std::vector<Slice> slices;  ///< in order, without overlap; `gone` ends the last one
};

struct Process {
  std::uint64_t session;
  std::int64_t pid;
  std::string job_id;
  std::uint64_t gang;  ///< the last one; 0: none yet
  std::int64_t start_ns, end_ns;
  /// Which gangs it belonged to, each since when, in order.
  std::vector<std::pair<std::int64_t, std::uint64_t>> gangs = {};
};

/// One process moved memory out of HBM or into it; the times are told in trace.proto.
struct Paging {
  std::int64_t at_ns;
  PagingRecord record;
};

struct Job {
  std::string id, name, team, user;
  int priority = 0;
  std::uint64_t promised_bytes = 0;
  std::int64_t start_ns = 0, end_ns = 0;  ///< admitted (or first seen) to end (or the trace's end)
  std::int64_t queued_ns = 0;             ///< how long it waited to be admitted
};

struct Gpu {
  std::uint32_t index;
  std::string uuid, name;
  std::uint64_t total_bytes = 0;
  bool simulated = false;
};

struct Swap {
  std::int64_t at_ns;
  SwitchRecord record;
};

/// So much of a gap is due to this.
struct CauseTime {
  std::string cause, detail;  ///< a word of docs/contract.md, "gap causes"; to whom, which, or ""
  std::int64_t time_ns = 0;
};

struct Gap {
  std::string job_id;
  std::uint64_t gang;
  std::int64_t start_ns, end_ns;
  std::string cause;  ///< empty: not known
  bool lent;
  std::vector<CauseTime> causes;  ///< as told, the largest first; none where nobody observed it
  std::int64_t length_ns() const { return end_ns - start_ns; }
};

/// What all of the gap is due to, the largest first. A gap is observed from when the manager knows
/// of it: what was seen from then on stands for all of it. One that was not observed is due to its
/// `cause`, or to "unknown".
std::vector<CauseTime> causes_of(const Gap& gap);

/// All of a job's processes on one GPU, when the figure changed.
struct MemoryPoint {
  std::int64_t at_ns;
  std::string job_id;
  std::uint32_t gpu;
  std::uint64_t resident_bytes, host_bytes, disk_bytes, unbacked_bytes, unpageable_bytes;
};

struct Problem {
  std::int64_t at_ns;
  ErrorRecord record;
};

struct Decision {
  std::int64_t at_ns;
  DecisionRecord record;
};

struct Model {
  std::string node;
  bool simulated = false;  ///< any GPU of it is
  std::int64_t start_ns = 0, end_ns = 0;
  std::vector<Job> jobs;    ///< in order of appearance
  std::vector<Gang> gangs;  ///< likewise
  std::vector<Gpu> gpus;    ///< by index
  std::vector<Process> processes;
  std::vector<Swap> swaps;     ///< by time
  std::vector<Paging> paging;  ///< in the order in which they ended
  std::vector<Gap> gaps;       ///< as recorded; of a trace without any (!has_activity) idle slices
  bool has_activity = false;   ///< it tells when gangs had work outstanding: any gap is recorded
  bool has_paging = false;     ///< it tells of paging: an older manager's does not
  std::vector<MemoryPoint> memory;
  std::vector<Problem> problems;
  std::vector<Decision> decisions;
  std::size_t unknown_records = 0;  ///< of kinds this version doesn't know
  std::optional<std::int64_t>
      realtime_at_0;  ///< wall time minus CLOCK_BOOTTIME, from the last anchor

  const Job* find_job(const std::string& id) const;
  /// The job's name, or the beginning of its id when it has none.
  std::string job_name(const std::string& id) const;
  std::vector<const Gang*> gangs_of(const std::string& job_id) const;
  /// RFC 3339, when the trace has a clock anchor.
  std::optional<std::string> wall_time(std::int64_t at_ns) const;
};

/// Never fails: what contradicts itself (an end without a beginning, time that runs backwards) is
/// taken as the least that makes sense.
Model build_model(const RawTrace& trace);

/// Pieces of time, in order and without overlap.
using Pieces = std::vector<std::pair<std::int64_t, std::int64_t>>;
Pieces merge(Pieces pieces);
Pieces subtract(const Pieces& from, const Pieces& what);  ///< both merged
Pieces common(const Pieces& a, const Pieces& b);          ///< both merged
std::int64_t total_ns(const Pieces& pieces);

}  // namespace plexrl::trace
