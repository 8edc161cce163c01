#pragma once

#include <functional>
#include <string>

#include "tools/run/job_env.h"

namespace plexrl::run {

/// plexrl-run beside the tasks of a Slurm step (`srun --plexrl`), which the SPANK plugin starts
/// (tools/slurm/spank_plexrl.cc): it is not their parent.
///
/// Three files have been opened for it: 3 takes the answer, 4 is closed when that is there, and 5
/// ends when the last task has ended.
class SlurmStep {
 public:
  /// What plexrl-run itself starts must not have the files.
  SlurmStep();

  /// How the tasks' environment has to be changed: entries that end with a zero byte,
  /// "=NAME=VALUE",
  /// "-NAME", and last "run".
  static std::string answer(const EnvBlock& before, const EnvBlock& after);

  /// Lets the tasks go on with this answer. They hold no file of theirs through us from now on: who
  /// reads their stderr waits for its end. Without it they end, with plexrl-run's own status.
  void let_run(const std::string& answer);

  /// Returns when the tasks have ended. `on_term` is called at each SIGTERM, which Slurm sends
  /// before it kills. All signals must be blocked.
  static void await_end(const std::function<void()>& on_term);
};

}  // namespace plexrl::run
