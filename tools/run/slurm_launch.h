#pragma once

#include <string>
#include <vector>

#include "tools/run/job_env.h"
#include "tools/run/options.h"

namespace plexrl::run {

/// How a job that a cluster manager places is started through Slurm: on the node that was chosen a
/// plexrl-run takes the place over, which the one that the user started, or its keeper, holds until
/// then. All of this only makes words; nothing is run.

enum class SlurmUse { kNo, kSrun, kSbatch };

/// By --slurm; `auto` means srun where this machine is part of a Slurm (srun is found, and a
/// configuration), and no inside a Slurm job, which has its nodes already.
/// `root` is prepended to the paths of configurations.
SlurmUse slurm_use(const Options& options, const EnvBlock& env, const std::string& root = "");

/// What Slurm shall know the job by beside its id: `--comment` of its job.
std::string slurm_comment(const std::string& placement);

/// The plexrl-run on the chosen node: the same job, at the place with this id.
std::vector<std::string> node_command(const Options& options, const EnvBlock& env,
                                      const std::string& runner, const std::string& placement);

/// srun in front of that. Ctrl-C goes on to the job at once.
std::vector<std::string> srun_command(const Options& options, const std::string& node,
                                      const std::string& placement,
                                      const std::vector<std::string>& node_command);

/// sbatch with the script in a string; prints the job's id.
std::vector<std::string> sbatch_command(const Options& options, const std::string& node,
                                        const std::string& placement,
                                        const std::vector<std::string>& node_command);

/// The words as a shell reads them.
std::string quoted(const std::vector<std::string>& words);

/// Slurm's own failures get plexrl-run's status for failures. Not for the job: `leave_srun` is
/// called on the node.
void prepare_for_srun(EnvBlock& env);
void leave_srun(EnvBlock& env);

}  // namespace plexrl::run
