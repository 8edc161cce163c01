#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tools/trace/model.h"

namespace plexrl::trace {

/// Makes a model of records as they come, in the order of their times. build_model is this for all
/// records of a trace; of a long one what is settled is taken out on the way (windows.h).
class ModelBuilder {
 public:
  void take(const TraceRecord& record);

  /// Ends what is open with the last record. Nothing may be taken after it.
  Model finish();

  /// What it has so far. Slices that go on end at kOpen.
  const Model& so_far() const { return model_; }
  static constexpr std::int64_t kOpen = INT64_MAX;

  /// When the last record was.
  std::int64_t now_ns() const { return now_; }
  /// Gaps that go on, by job and gang.
  const std::map<std::pair<std::string, std::uint64_t>, Gap>& open_gaps() const {
    return open_gaps_;
  }

  /// Takes out what records about moments from `before_ns` on change nothing of: slices of each
  /// gang that ended by then, and before its open gap if it has one; swaps; records about paging;
  /// and gaps, those too that still say something of slices that stay. Memory, decisions and
  /// processes that have ended are dropped. The result has jobs and GPUs as well; where the trace
  /// has no records of gaps, idle slices are its gaps.
  Model take_settled(std::int64_t before_ns, bool has_gap_records);

  /// Of the gaps in so_far(), those from here on were not there at the last take_settled.
  std::size_t first_new_gap() const { return first_new_gap_; }
  /// Gaps during which a gang went through so many states that they were taken as settled before
  /// the gap was over.
  std::uint64_t cut_gaps() const { return cut_gaps_; }

 private:
  void take(std::int64_t at, const TraceRecord& record);
  void take_session(std::int64_t at, const SessionRecord& session);
  void take_gpu(const SessionRecord& session);
  void take_job(std::int64_t at, const SessionRecord& session);
  void end_job(std::int64_t at, const std::string& id);
  void end_queue(Job& job);
  void take_gang_of_process(std::int64_t at, const SessionRecord& session);
  void end_process(std::int64_t at, const SessionRecord& session);
  void take_lease(std::int64_t at, const LeaseRecord& lease);
  void take_gap(const GapRecord& record);
  void end_gap(const Gang& gang, std::int64_t at);
  void take_memory(std::int64_t at, const MemoryRecord& memory);
  void add_memory_point(std::int64_t at, const std::string& job_id, std::uint32_t gpu);
  static void close_gang(Gang& gang, std::int64_t at);
  void end_gang(Gang& gang, std::int64_t at);
  void close_everything(std::int64_t at);
  static void gaps_from_idle_slices(Model& model);
  Job& job_of(const std::string& id);
  Gang& gang_of(const std::string& job_id, std::uint64_t id);
  Gpu& gpu_of(std::uint32_t index);

  Model model_;
  std::int64_t now_ = 0;
  std::size_t first_new_gap_ = 0;
  std::uint64_t cut_gaps_ = 0;
  std::unordered_map<std::string, std::size_t> job_index_;                   ///< by id
  std::map<std::pair<std::string, std::uint64_t>, std::size_t> gang_index_;  ///< by job and gang
  std::map<std::string, std::int64_t> queued_since_;
  std::set<std::string> admitted_;
  std::map<std::pair<std::string, std::uint64_t>, Gap> open_gaps_;  ///< by job and gang
  std::map<std::tuple<std::string, std::uint64_t, std::uint32_t>, MemoryRecord> memory_;
};

}  // namespace plexrl::trace
