#include "tools/trace/windows.h"

#include <algorithm>

namespace plexrl::trace {

void Windows::take(TraceRecord&& record) {
  waiting_.push_back(std::move(record));
  if (waiting_.size() < 2 * held_) return;
  let_go(held_);
  end_window();
}

/// The `count` oldest of those that wait; of one moment, those that came first.
void Windows::let_go(std::size_t count) {
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  order.reserve(waiting_.size());
  for (std::size_t i = 0; i < waiting_.size(); ++i) order.emplace_back(waiting_[i].at_ns(), i);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < count; ++i) {
    const TraceRecord& record = waiting_[order[i].second];
    const bool is_late = static_cast<std::int64_t>(record.at_ns()) < builder_.now_ns() ||
                         earliest_moment_of(record) < from_ns_;
    if (is_late) ++late_;
    builder_.take(record);
  }
  std::vector<TraceRecord> rest;
  rest.reserve(2 * held_);
  for (std::size_t i = count; i < order.size(); ++i) {
    rest.push_back(std::move(waiting_[order[i].second]));
  }
  waiting_ = std::move(rest);
  since_window_ += count;
}

/// That it tells something of which is not known yet.
std::int64_t Windows::earliest_moment_of(const TraceRecord& record) const {
  std::uint64_t earliest = record.at_ns();
  if (record.has_gap()) {
    const GapRecord& gap = record.gap();
    const auto open = builder_.open_gaps().find({gap.job_id(), gap.gang()});
    const bool is_known = open != builder_.open_gaps().end() && gap.end_ns() != 0 &&
                          open->second.start_ns == static_cast<std::int64_t>(gap.start_ns());
    earliest = std::min(earliest, is_known ? gap.end_ns() : gap.start_ns());
  } else if (record.has_switch_() && record.switch_().decided_at_ns() != 0) {
    earliest = std::min(earliest, record.switch_().decided_at_ns());
  }
  return static_cast<std::int64_t>(earliest);
}

void Windows::end_window() {
  std::int64_t to_ns = builder_.now_ns();
  for (const TraceRecord& record : waiting_) to_ns = std::min(to_ns, earliest_moment_of(record));
  if (to_ns <= from_ns_) {
    // A switch or a gap that began before is told of by one that waits. That must not go on for
    // ever, whatever is in the file.
    constexpr std::size_t kLongestWindow = 4;
    if (since_window_ < kLongestWindow * held_ || builder_.now_ns() <= from_ns_) return;
    to_ns = builder_.now_ns();
  }
  sink_->pass(builder_.so_far(), builder_.open_gaps(), from_ns_, to_ns);
  const auto first_new = static_cast<std::ptrdiff_t>(builder_.first_new_gap());
  const bool has_gap_records =
      builder_.so_far().has_activity ||
      std::any_of(waiting_.begin(), waiting_.end(), [](const auto& one) { return one.has_gap(); });
  if (has_gap_records && has_assumed_gaps_) ++late_;
  has_assumed_gaps_ = !has_gap_records;
  const Model settled = builder_.take_settled(to_ns, has_gap_records);
  sink_->settle(settled, {settled.gaps.begin() + first_new, settled.gaps.end()});
  from_ns_ = to_ns;
  since_window_ = 0;
}

Model Windows::finish() {
  let_go(waiting_.size());
  const auto first_new = static_cast<std::ptrdiff_t>(builder_.first_new_gap());
  Model rest = builder_.finish();
  sink_->pass(rest, {}, from_ns_, INT64_MAX);
  sink_->settle(rest, {rest.gaps.begin() + first_new, rest.gaps.end()});
  return rest;
}

}  // namespace plexrl::trace
