#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/cli/installation.h"
#include "tools/run/job_env.h"
#include "tools/run/options.h"
#include "tools/run/scoped_fd.h"

namespace plexrl::run {

/// The GPUs that a cluster manager has given to the job, held by the program that asks it
/// (plexrl-cluster-client, which is nobody's child) until `started`, or until this process ends:
/// then they are given back.
class ClusterPlace {
 public:
  /// Asks for them, and waits while the request is queued; `say` gets why, each time that changes.
  /// Errors, each a sentence for the user: refused, no cluster manager.
  [[nodiscard]] static absl::StatusOr<ClusterPlace> ask(
      const Options& options, const cli::Installation& installation, const EnvBlock& env,
      const std::function<void(const std::string&)>& say);

  /// The node manager has admitted the job under this id: the place is the job's from now on, for
  /// as long as its node tells of it. Where the place was taken over, on a node that Slurm cleans
  /// up after the job, this waits some seconds until the cluster manager knows, too.
  void started(const std::string& job_id);

  /// Slurm has the job in its queue under this id: the place is kept until it has begun, or until
  /// Slurm has it no more, whatever becomes of this process.
  void submitted(const std::string& slurm_job);

  /// From now on programs that this process starts hold the place too, until they end.
  void share_with_children();

  /// For CUDA_VISIBLE_DEVICES: the UUIDs, with commas.
  const std::string& gpus() const { return gpus_; }
  const std::string& node() const { return node_; }
  const std::string& id() const { return id_; }
  bool is_here() const { return is_here_; }

 private:
  void tell(const std::string& line);

  ScopedFd to_client_, from_client_;
  std::string gpus_, node_, id_;
  bool is_here_ = false, is_taken_over_ = false;
};

/// The GPUs that a value of CUDA_VISIBLE_DEVICES restricts the choice to; none: all. Error: it
/// names them in a way that means something on this machine only.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> gpus_to_choose_from(const char* visible);

}  // namespace plexrl::run
