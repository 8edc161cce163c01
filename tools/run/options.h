#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tools/cli/socket_path.h"

namespace plexrl::run {

/// What the command line and the environment ask for.
struct Options {
  std::string name;  ///< never empty: --name, or the command's base name
  std::string team;
  int priority = 50;
  std::uint64_t memory_bytes = 0;  ///< per GPU; 0: what is usable
  std::uint64_t max_wait_ns = 0;   ///< 0: the manager's
  double max_slowdown = 0;         ///< 0: no limit
  bool no_wait = false;
  bool require = false;
  bool join = false;
  bool exports_are_real = false;
  bool may_be_checkpointed = false;
  std::string cluster;  ///< HOST:PORT of the cluster manager that places it; or empty
  int gpus = 1;         ///< on each of its nodes; with `cluster`
  int nodes = 1;        ///< likewise
  std::vector<std::string> apart_from;  ///< likewise: names of jobs that it must not share with
  std::string slurm = "auto";           ///< likewise: auto, srun, sbatch, no
  std::string slurm_options;            ///< likewise: more for srun or sbatch, with blanks between
  std::string placement;                ///< likewise: the place that it has already; or empty
  bool slurm_step = false;            ///< beside the tasks of a Slurm step; `command` is no command
  std::optional<std::string> simgpu;  ///< the specification; set but empty: a default device
  std::vector<std::string> command;   ///< never empty
};

/// An answer that ends the program: text for stdout (help, version) or a complaint for stderr.
struct Stop {
  int status;
  std::string out;
  std::string error;
};

/// Reads the command line. `env` gives the defaults PLEXRL_TEAM, PLEXRL_PRIORITY, PLEXRL_MEMORY,
/// PLEXRL_EXPORT and PLEXRL_EVICT (not inside another job, where the last three describe that job),
/// PLEXRL_SLURM and PLEXRL_SIMGPU. Wrong usage is a Stop with status 125, as docs/contract.md says
/// for plexrl-run.
std::variant<Options, Stop> parse_options(int argc, const char* const* argv, const cli::Env& env);

}  // namespace plexrl::run
