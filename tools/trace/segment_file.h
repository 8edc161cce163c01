#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "proto/trace.pb.h"

namespace plexrl::trace {

/// Reads a segment's frames one after the other, from the disk: no more of the file is in memory
/// than a frame (at most 64 MiB) and a piece that is read ahead.
///
///   SegmentFile file(path);
///   TraceChunk chunk;
///   while (file.next(&chunk)) use(chunk);
///   if (!file.problem().empty()) say(file.problem());
///
/// One thread.
class SegmentFile {
 public:
  /// From byte `from` on, which has to be where a frame begins.
  explicit SegmentFile(std::string path, std::uint64_t from = 0);

  /// False at the end, at the first bad frame, and when the file can't be read.
  bool next(TraceChunk* chunk);

  /// Why it ended early, with the offset in the file; empty at a clean end.
  const std::string& problem() const { return problem_; }
  /// The last frame is not whole, and what there is of it shows no other frame: of a file that is
  /// being written, the rest may come. A frame behind it means that its length is damaged.
  bool may_go_on() const { return may_go_on_; }
  /// Behind the last frame that was good.
  std::uint64_t offset() const { return offset_; }
  /// Of reading the file, not of what is in it.
  const absl::Status& status() const { return status_; }

 private:
  bool read_more();

  std::string path_;
  std::ifstream in_;
  std::string buffer_;  ///< from offset_ - used_ on
  std::size_t used_ = 0;
  std::uint64_t offset_;
  std::string problem_;
  bool may_go_on_ = false;
  absl::Status status_;
};

}  // namespace plexrl::trace
