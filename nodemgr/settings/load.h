#pragma once

#include <functional>
#include <span>
#include <string>

#include "nodemgr/settings/table.h"

/// All sources of a daemon's settings in order of precedence: file, environment, flags.
namespace plexrl::nodemgr::settings {

struct Loaded {
  Values values;
  CommandLine line;
  std::string file;  ///< "" when none was read
};

/// `find_file`: which file to read ("" none), by what environment and flags say (the row `config`,
/// if the table has it). `other_sections`: tables of tables that the caller reads itself.
/// PLEXRL_DATA stands for the row `state_dir`, below PLEXRL_STATE_DIR. PLEXRL_LOG with levels by
/// file ("pager:debug") is for the preload, and passed over.
[[nodiscard]] absl::StatusOr<Loaded> load(
    std::span<const Row> table, std::span<const std::string> other_sections,
    const std::function<std::string(const Values&)>& find_file, int argc, const char* const* argv,
    const char* const* environment);

}  // namespace plexrl::nodemgr::settings
