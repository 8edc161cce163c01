#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/trace.pb.h"

/// Reading what a node manager has written (proto/trace.proto). The model that the verbs work on is
/// in model.h; tests of other parts may use either.
namespace plexrl::trace {

struct RawTrace {
  std::vector<TraceRecord> records;   ///< in order of time; records of unknown kinds included
  std::vector<std::string> warnings;  ///< "FILE: why it was not read to its end"
};

using TakeRecord = std::function<void(TraceRecord&&)>;

/// Gives out the chunk's records, but for those with a time or duration that can't be true (more
/// than nine years), and returns how many those are.
std::size_t take_records(TraceChunk& chunk, const TakeRecord& take);

/// As read_trace, but gives out each record as it is read, in the order of the files; no more of
/// them is in memory than a frame.
[[nodiscard]] absl::Status read_records(const std::vector<std::string>& paths,
                                        const TakeRecord& take, std::vector<std::string>& warnings);

/// Reads segment files (*.plxt) and folders. A folder with segments is one run; of a folder that
/// holds runs, the newest is taken. Segments of a run are read in the order of their names. A
/// segment that is cut short or damaged is read as far as it goes; that is a warning, as are
/// records left out (take_records). Errors: a path that is not there, can't be read, or holds no
/// segment.
[[nodiscard]] absl::StatusOr<RawTrace> read_trace(const std::vector<std::string>& paths);

/// The newest run (by its newest segment) of the folders given, as a path; NotFound when there is
/// none. Folders that don't exist are passed over.
[[nodiscard]] absl::StatusOr<std::string> newest_run(const std::vector<std::string>& folders);

}  // namespace plexrl::trace
