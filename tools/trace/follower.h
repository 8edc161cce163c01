#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/trace/reader.h"

namespace plexrl::trace {

/// A run that may still be written: each `look` reads what has been added to it since the last.
/// When a newer run begins (the next node manager's) that one is followed from its beginning.
///
///   Follower follower(folders);
///   while (true) { if (follower.look().value()) show(build_model(follower.trace())); sleep(…); }
///
/// Everything that was read stays in memory. One thread.
class Follower {
 public:
  /// A run's folder, or folders of runs.
  explicit Follower(std::vector<std::string> folders) : folders_(std::move(folders)) {}

  /// Whether there are new records. NotFound: there is no run yet. Segments that are removed
  /// meanwhile keep their records; a frame that is not whole yet is read the next time.
  [[nodiscard]] absl::StatusOr<bool> look();

  /// All of the run so far, in order of time. What can't be read is in its warnings, once.
  const RawTrace& trace() const { return trace_; }
  const std::string& run() const { return run_; }

 private:
  absl::StatusOr<std::string> current_run() const;
  bool read_on(const std::string& file);

  struct Segment {
    std::size_t read_bytes = 0;
    bool is_damaged = false;
  };
  std::vector<std::string> folders_;
  std::string run_;
  std::map<std::string, Segment> segments_;  ///< by path
  RawTrace trace_;
};

}  // namespace plexrl::trace
