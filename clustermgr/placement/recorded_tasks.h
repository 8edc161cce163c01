#pragma once

#include <vector>

#include "clustermgr/placement/tasks.h"

namespace plexrl::clustermgr::placement {

/// The dependencies that a job's recorded bursts allow, repeated for ever.
///
/// What waits for what is not recorded, so the cautious rule is: a burst waits for the last burst
/// of each gang of its job that had ended before it was wanted; and it is wanted as long after the
/// latest of those as it was when recorded. A job that runs phases one after the other is repeated
/// as it is; one that overlaps them keeps at most the overlap that it had.
///
/// What is repeated lies between the first and the last burst of the pacing gang, the one that has
/// the fewest bursts: whole steps, without a seam. Each burst of that gang ends a step.
class RecordedRound {
 public:
  /// `gangs[i]`: bursts of gang i, oldest first. Empty when there are too few: every gang
  /// needs two.
  explicit RecordedRound(const std::vector<const std::vector<Burst>*>& gangs);

  bool empty() const { return tasks_.empty(); }
  const std::vector<Task>& tasks() const { return tasks_; }
  /// As recorded, waits of that time included.
  Duration length() const { return length_; }

 private:
  std::vector<Task> tasks_;
  Duration length_{0};
};

/// What was recorded, over and over. The record must outlive it and not be empty.
class RepeatedRound : public TaskSource {
 public:
  explicit RepeatedRound(const RecordedRound& round) : round_(round) {}
  bool next(Task& task) override;

 private:
  const RecordedRound& round_;
  std::size_t position_ = 0;
};

}  // namespace plexrl::clustermgr::placement
