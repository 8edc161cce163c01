#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "nodemgr/policy/gap_profile.h"

namespace plexrl::nodemgr {

/// What is known of the gaps of a job's gangs, by the GPUs that each uses (a mask of indices).
using GangGaps = std::map<std::uint64_t, policy::GapProfile>;

/// What is known of a gang on these GPUs, or of the only one on as many others; null: nothing.
/// Lives as long as `gaps`.
const policy::GapProfile* find_gaps(const GangGaps& gaps, std::uint64_t gpus);

/// What earlier runs have taught about a job, by (user, name): how much memory each of its
/// processes takes on a GPU beside what it allocates (context, modules, communication buffers), and
/// how long the bursts and gaps of its gangs are.
///
/// A small JSON file for each, `<folder>/<uid>/<name>.json`; written whole or not at all. What
/// can't be read counts as not known. One thread.
class Profiles {
 public:
  /// The folder is made when there is something to write.
  explicit Profiles(std::string folder) : folder_(std::move(folder)) {}

  struct Known {
    /// Bytes to set aside for a process of the job: what was seen and an eighth more, since a
    /// longer run may load more; whole 2 MiB. 0: not known.
    std::uint64_t overhead = 0;
    GangGaps gaps;  ///< as a new run begins with (GapProfile::remembered)
  };
  Known known(uid_t uid, const std::string& name) const;

  /// A run has ended in which no process took more than `seen` bytes. More than known counts at
  /// once, less by a quarter: a run that ended early has not shown everything.
  [[nodiscard]] absl::Status learn(uid_t uid, const std::string& name, std::uint64_t seen);
  /// What a run has shown so far, what it began with included, in place of what was known of these
  /// gangs.
  [[nodiscard]] absl::Status learn(uid_t uid, const std::string& name, const GangGaps& gaps);

 private:
  std::string path(uid_t uid, const std::string& name) const;

  std::string folder_;
};

}  // namespace plexrl::nodemgr
