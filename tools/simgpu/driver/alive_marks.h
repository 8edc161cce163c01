#pragma once

#include <string>

#include "tools/simgpu/driver/fork_watch.h"

namespace plexrl::simgpu {

/// Numbered marks that go with the program that has taken them: locks of an open file, which the
/// kernel lets go when a process ends, however it does, and when it becomes another program by
/// exec, which closes the file. (A pid and its start tell no exec.) A child of fork has none of
/// them: its copy of the open file, which would keep its parent's marks as long as it lives, is
/// closed there and another opened.
///
/// Threads: any, but for `open` and `close`.
class AliveMarks {
 public:
  AliveMarks() = default;
  ~AliveMarks() { close(); }
  AliveMarks(const AliveMarks&) = delete;
  AliveMarks& operator=(const AliveMarks&) = delete;

  /// The marks of the file at `path`, in place of those that were open. False with errno.
  bool open(const std::string& path);
  /// Lets go of what was taken here.
  void close();
  /// False when somebody has it.
  bool take(int mark);
  /// Whether somebody else has it.
  bool is_taken(int mark) const;

 private:
  void become_child();
  std::string path_;
  int fd_ = -1;
  ForkWatch forks_{[this] { become_child(); }};
};

}  // namespace plexrl::simgpu
