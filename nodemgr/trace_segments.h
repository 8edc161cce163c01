#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// The files of one run of a trace: `RUN/000000.plxt`, … each a sequence of frames as the head of
/// proto/segment.h describes them.
class TraceSegments {
 public:
  TraceSegments(std::string run_folder, std::uint64_t segment_bytes)
      : run_folder_(std::move(run_folder)), segment_bytes_(segment_bytes) {}

  /// Is a new file due before the next frame?
  bool wants_new_file() const { return !file_.is_open() || written_ >= segment_bytes_; }
  [[nodiscard]] absl::Status open_next();
  /// Appends one frame that holds `chunk` (a serialised TraceChunk). What could not be written
  /// whole is cut off again.
  [[nodiscard]] absl::Status append(const std::string& chunk);

  const std::string& run_folder() const { return run_folder_; }
  std::string current_path() const { return path_; }

 private:
  std::string run_folder_;
  std::uint64_t segment_bytes_;
  int next_number_ = 0;
  std::string path_;
  ScopedFd file_;
  std::uint64_t written_ = 0;
};

/// Removes segments of any run under `folder`, oldest first, until they are together at most
/// `max_bytes` and none is older than `max_age`. `keep` (the one being written) stays.
void prune_segments(const std::string& folder, std::uint64_t max_bytes,
                    std::chrono::seconds max_age, const std::string& keep);

}  // namespace plexrl::nodemgr
