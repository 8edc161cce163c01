#include "tools/trace/follower.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/trace/run_folder.h"
#include "tools/trace/segment_file.h"

namespace plexrl::trace {

/// A folder that has segments is the run itself.
absl::StatusOr<std::string> Follower::current_run() const {
  for (const std::string& folder : folders_) {
    if (!segments_in(folder).empty()) return folder;
  }
  return newest_run(folders_);
}

absl::StatusOr<bool> Follower::look() {
  const absl::StatusOr<std::string> run = current_run();
  if (!run.ok()) return run.status();
  if (*run != run_) {
    run_ = *run;
    segments_.clear();
    sink_.begin();
  }
  bool has_new = false;
  // Listed before it is read: when there is a newer one, nothing is added to this one any more.
  const std::vector<std::string> files = segments_in(run_);
  for (const std::string& file : files) has_new |= read_on(file, file == files.back());
  return has_new;
}

bool Follower::read_on(const std::string& file, bool is_newest) {
  Segment& segment = segments_[file];
  if (segment.is_over) return false;
  SegmentFile frames(file, segment.read_bytes);
  bool has_new = false;
  const auto take = [&](TraceRecord&& record) {
    has_new = true;
    sink_.take(std::move(record));
  };
  for (TraceChunk chunk; frames.next(&chunk);) take_records(chunk, take);
  segment.read_bytes = frames.offset();
  const bool is_damaged = !frames.problem().empty() && !(is_newest && frames.may_go_on());
  if (is_damaged) {
    sink_.warn(
        absl::StrCat(file, ": ", frames.problem(), "; the rest of this file is not followed"));
  }
  segment.is_over = is_damaged || (!is_newest && frames.status().ok());
  return has_new;
}

}  // namespace plexrl::trace
