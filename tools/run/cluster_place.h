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

/// The GPUs of this machine that a cluster manager has given to the job, held by the program that
/// asks it (plexrl-cluster-client, which is nobody's child) until `started`, or until this process
/// ends: then they are given back.
class ClusterPlace {
 public:
  /// Asks for them, and waits while the request is queued; `say` gets why, each time that changes.
  /// Errors, each a sentence for the user: refused, placed on another machine, no cluster manager.
  [[nodiscard]] static absl::StatusOr<ClusterPlace> ask(
      const Options& options, const cli::Installation& installation, const EnvBlock& env,
      const std::function<void(const std::string&)>& say);

  /// The node manager has admitted the job under this id: the place is the job's from now on, for
  /// as long as its node tells of it.
  void started(const std::string& job_id);

  /// For CUDA_VISIBLE_DEVICES: the UUIDs, with commas.
  const std::string& gpus() const { return gpus_; }

 private:
  ScopedFd to_client_;
  std::string gpus_;
};

/// The GPUs that a value of CUDA_VISIBLE_DEVICES restricts the choice to; none: all. Error: it
/// names them in a way that means something on this machine only.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> gpus_to_choose_from(const char* visible);

}  // namespace plexrl::run
