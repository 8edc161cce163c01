#pragma once

#include "tools/trace/gap_report.h"
#include "tools/trace/summary.h"
#include "tools/trace/windows.h"

/// What verbs make of a trace that is read in windows.
namespace plexrl::trace {

/// What is the same size however long the trace is: sums, and the longest gaps.
class Totals : public WindowSink {
 public:
  explicit Totals(std::size_t longest_gaps) : gaps_(longest_gaps) {}

  void pass(const Model& model, const OpenGaps& open_gaps, std::int64_t from_ns,
            std::int64_t to_ns) override;
  void settle(const Model& settled, const std::vector<Gap>& new_gaps) override;

  /// `ended`: of Windows::finish.
  Summary summary(const Model& ended) const { return sums_.summary(ended); }
  GapReport gaps() const { return gaps_.report(); }

 private:
  Sums sums_;
  GapSums gaps_;
};

/// The slices, gaps and switches themselves, and nothing else: all of them, or the newest.
class Recent : public WindowSink {
 public:
  /// About so many entries at most.
  explicit Recent(std::size_t most = SIZE_MAX) : most_(most) {}

  void pass(const Model&, const OpenGaps&, std::int64_t, std::int64_t) override {}
  void settle(const Model& settled, const std::vector<Gap>& new_gaps) override;

  /// `ended` with what was collected; its beginning is that of what is left.
  Model model(Model ended) const;
  /// Older ones than these were let go.
  bool is_cut() const { return is_cut_; }

 private:
  void let_oldest_go();

  std::size_t most_;
  bool is_cut_ = false;
  Model kept_;
  std::size_t entries_ = 0;
};

}  // namespace plexrl::trace
