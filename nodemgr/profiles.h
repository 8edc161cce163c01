#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace plexrl::nodemgr {

/// What earlier runs have taught about a job, by (user, name): so far how much memory each of its
/// processes takes on a GPU beside what it allocates (context, modules, communication buffers).
///
/// A small JSON file for each, `<folder>/<uid>/<name>.json`; written whole or not at all. What
/// can't be read counts as not known. One thread.
class Profiles {
 public:
  /// The folder is made when there is something to write.
  explicit Profiles(std::string folder) : folder_(std::move(folder)) {}

  /// Bytes to set aside for a process of the job: what was seen and an eighth more, since a longer
  /// run may load more; whole 2 MiB. 0: not known.
  std::uint64_t overhead(uid_t uid, const std::string& name) const;

  /// A run has ended in which no process took more than `seen` bytes. More than known counts at
  /// once, less by a quarter: a run that ended early has not shown everything.
  [[nodiscard]] absl::Status learn(uid_t uid, const std::string& name, std::uint64_t seen);

 private:
  std::string path(uid_t uid, const std::string& name) const;
  std::uint64_t known(uid_t uid, const std::string& name) const;

  std::string folder_;
};

}  // namespace plexrl::nodemgr
