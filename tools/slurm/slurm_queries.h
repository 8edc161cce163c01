#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/slurm/program_output.h"

namespace plexrl::slurm {

/// Runs one of Slurm's programs: output_of with the environment of the caller's choice. Tests put
/// an answer in its place.
using Ask = std::function<absl::StatusOr<ProgramOutput>(const std::vector<std::string>& words)>;

/// Whether Slurm's controller answers. The error is a sentence for the user.
[[nodiscard]] absl::Status check_controller(const Ask& ask);

/// A node as Slurm knows it (`scontrol show node`).
struct SlurmNode {
  std::string state;     ///< "IDLE", "MIXED+DRAIN", …
  std::string reason;    ///< why an administrator, or Slurm, took it out; or empty
  int plexrl_slots = 0;  ///< its count of the gres plexrl
  bool takes_jobs() const;
};
/// NotFound: Slurm has no node of this name. All errors are sentences for the user.
[[nodiscard]] absl::StatusOr<SlurmNode> find_node(const Ask& ask, const std::string& name);
/// One line of `scontrol --oneliner show node`.
SlurmNode parse_node(const std::string& line);

/// A job of the caller's that Slurm has not started yet.
struct PendingJob {
  std::string id;
  std::string reason;    ///< Slurm's word, "Resources"
  std::string expected;  ///< local time at which Slurm expects to start it, or empty
};
/// The one with this comment. Nothing: it is not waiting, or Slurm does not answer.
std::optional<PendingJob> find_pending(const Ask& ask, const std::string& comment);
/// Finds it in what squeue has printed, by kPendingFormat.
std::optional<PendingJob> parse_pending(const std::string& lines, const std::string& comment);
inline constexpr char kPendingFormat[] = "%i|%k|%S|%r";

/// Jobs that run on a node, for the user: "12 (train), 14 (eval)".
std::string running_on(const Ask& ask, const std::string& node);

/// Why a job waits and when it could run, in words. `others`: what runs on its node.
std::string explain_pending(const PendingJob& job, const std::string& node,
                            const std::string& others);

/// Whether Slurm still has the job, waiting or running. Nothing: Slurm does not answer.
std::optional<bool> has_job(const Ask& ask, const std::string& id);

}  // namespace plexrl::slurm
