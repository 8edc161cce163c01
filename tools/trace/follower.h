#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/trace/reader.h"

namespace plexrl::trace {

/// A run that may still be written: each `look` gives out what has been added to it since the last.
/// When a newer run begins (the next node manager's) that one is followed from its beginning.
///
///   Follower follower(folders, {.begin = forget_all, .take = count_it});
///   while (true) { if (follower.look().value()) show(); sleep(…); }
///
/// It keeps no records, and reads no more of a file at a time than a frame. One thread.
class Follower {
 public:
  struct Sink {
    std::function<void()> begin;  ///< a run's beginning: what was taken before is another's
    TakeRecord take;              ///< in the order of the files
    std::function<void(std::string)> warn;  ///< what can't be read, once
  };

  /// A run's folder, or folders of runs.
  Follower(std::vector<std::string> folders, Sink sink)
      : folders_(std::move(folders)), sink_(std::move(sink)) {}

  /// Whether there were new records. NotFound: there is no run yet.
  ///
  /// A frame that is not whole is read the next time, as long as it may be one that is being
  /// written: it is the last of the newest segment, and no other frame lies behind it. Otherwise
  /// it is damaged, that is said, and the rest of its segment is left out.
  [[nodiscard]] absl::StatusOr<bool> look();

  const std::string& run() const { return run_; }

 private:
  absl::StatusOr<std::string> current_run() const;
  bool read_on(const std::string& file, bool is_newest);

  struct Segment {
    std::uint64_t read_bytes = 0;
    bool is_over = false;  ///< damaged, or a newer one has begun
  };
  std::vector<std::string> folders_;
  Sink sink_;
  std::string run_;
  std::map<std::string, Segment> segments_;  ///< by path
};

}  // namespace plexrl::trace
