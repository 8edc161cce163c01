#pragma once

#include <span>
#include <string>
#include <vector>

#include "nodemgr/policy/config.h"
#include "nodemgr/settings/table.h"
#include "nodemgr/teams.h"

namespace plexrl::nodemgr {

/// Every setting of plexrl-nodemgr: the one table.
std::span<const settings::Row> daemon_table();

/// The [policy] part, as the policy takes it.
policy::Config policy_config(const settings::Values& values);

/// The [job] part.
Quotas job_quotas(const settings::Values& values);

/// Reads everything in order of precedence: file (of --config, else /etc/plexrl/nodemgr.toml, else
/// for a user ~/.config/plexrl/nodemgr.toml; a missing file is none), environment, flags.
struct LoadedSettings {
  settings::Values values;
  settings::CommandLine line;
  std::string file;  ///< "" when none was read
  Teams teams;       ///< of the file
  /// A line for each setting that was set, is accepted, and changes nothing in this version.
  std::vector<std::string> without_effect;
};
[[nodiscard]] absl::StatusOr<LoadedSettings> load_settings(int argc, const char* const* argv,
                                                           const char* const* environment);

}  // namespace plexrl::nodemgr
