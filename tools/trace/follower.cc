#include "tools/trace/follower.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "proto/segment.h"
#include "tools/trace/run_folder.h"

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
    trace_ = {};
  }
  bool has_new = false;
  for (const std::string& file : segments_in(run_)) has_new |= read_on(file);
  if (has_new) sort_by_time(trace_);
  return has_new;
}

bool Follower::read_on(const std::string& file) {
  Segment& segment = segments_[file];
  if (segment.is_damaged) return false;
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(segment.read_bytes));
  std::stringstream rest;
  rest << in.rdbuf();
  const std::string bytes = rest.str();
  SegmentParser parser(bytes);
  const std::size_t before = trace_.records.size();
  for (TraceChunk chunk; parser.next(&chunk);) take_records(chunk, trace_);
  segment.read_bytes += parser.offset();
  if (!parser.problem().empty() && !parser.is_cut_short()) {
    segment.is_damaged = true;
    trace_.warnings.push_back(absl::StrCat(file, ": ", parser.problem(), " (counted from ",
                                           segment.read_bytes - parser.offset(),
                                           "); not followed any further"));
  }
  return trace_.records.size() > before;
}

}  // namespace plexrl::trace
