#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/model.h"
#include "tools/trace/model_builder.h"

namespace plexrl::trace {

/// What is made of a trace that is not all in memory; called for each window in turn.
class WindowSink {
 public:
  using OpenGaps = std::map<std::pair<std::string, std::uint64_t>, Gap>;  ///< by job and gang
  virtual ~WindowSink() = default;

  /// `model` has all slices, and swaps, that reach between the two moments, where the last window
  /// ended and where this one does. Slices that go on end at ModelBuilder::kOpen.
  virtual void pass(const Model& model, const OpenGaps& open_gaps, std::int64_t from_ns,
                    std::int64_t to_ns) = 0;
  /// What no later record changes anything of. Each slice, swap and paging record is in one
  /// `settled` alone. Gaps are in each that has slices beside them; `new_gaps` has each once.
  virtual void settle(const Model& settled, const std::vector<Gap>& new_gaps) = 0;
};

/// Cuts a trace into windows while it is read, so that a bounded part of it is in memory: at most
/// twice `held` records, as they are in the file, and slices of as many. Beside that stay jobs,
/// gangs, GPUs and problems.
///
/// Records are written when something is over, and a switch or a gap is told later than it began:
/// the newest `held` records are put in order and looked through for such before a window ends, so
/// nothing is in a window that it does not belong to. What a file tells later still is taken as it
/// comes, and counted.
///
/// One thread.
class Windows {
 public:
  static constexpr std::size_t kHeld = 50'000;

  /// `sink` must outlive it.
  explicit Windows(WindowSink& sink, std::size_t held = kHeld) : sink_(&sink), held_(held) {}
  /// A copy, with a sink of its own: what there would be if the trace ended here.
  Windows(const Windows& other, WindowSink& sink) : Windows(other) { sink_ = &sink; }

  void take(TraceRecord&& record);

  /// The last window, and what has been kept all along: jobs, GPUs, problems, the head. Nothing may
  /// be taken after it.
  Model finish();

  /// Records that told of a moment in a window that had ended: what there was then is not exact.
  std::uint64_t late_records() const { return late_ + builder_.cut_gaps(); }

 private:
  Windows(const Windows&) = default;
  void let_go(std::size_t count);
  void end_window();
  std::int64_t earliest_moment_of(const TraceRecord& record) const;

  WindowSink* sink_;
  std::size_t held_;
  std::vector<TraceRecord> waiting_;
  ModelBuilder builder_;
  std::int64_t from_ns_ = INT64_MIN;
  std::size_t since_window_ = 0;  ///< records that the builder has taken
  bool has_assumed_gaps_ =
      false;  ///< it took idle slices for gaps, as there were no records of any
  std::uint64_t late_ = 0;
};

}  // namespace plexrl::trace
