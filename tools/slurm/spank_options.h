#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plexrl::slurm {

/// What `srun --plexrl=TEXT` asks for, as options of plexrl-run.
///
/// TEXT is "key=value,key=value" with the names of plexrl-run's options; flags stand alone:
/// "team=red,memory=40GiB,require". A value ends at a comma, but for simgpu's, which has commas and
/// takes all that follows. Only names are checked here: this runs in srun, sbatch and slurmstepd,
/// where little is to be linked; what values may be, plexrl-run knows.
struct SpankOptions {
  std::vector<std::string> words;  ///< "--team=red", "--require"
  std::string error;               ///< a sentence for the user; empty: all is well
};
SpankOptions parse_spank_options(std::string_view text);

/// For --help.
inline constexpr char kSpankKeys[] =
    "name team priority memory max-slowdown max-wait evict export simgpu, and alone no-wait "
    "require";

}  // namespace plexrl::slurm
