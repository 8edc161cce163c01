#include "nodemgr/settings/load.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace plexrl::nodemgr::settings {
namespace {

std::vector<const char*> without_log_by_file(const char* const* environment) {
  std::vector<const char*> kept;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.starts_with("PLEXRL_LOG=") && entry.find(':') != entry.npos) continue;
    kept.push_back(*environment);
  }
  kept.push_back(nullptr);
  return kept;
}

absl::Status apply_data(Values& values, const char* const* environment) {
  constexpr std::string_view kName = "PLEXRL_DATA=";
  const auto is_state_dir = [](const Row& row) {
    return std::string_view(row.name) == "state_dir";
  };
  if (std::none_of(values.table().begin(), values.table().end(), is_state_dir)) {
    return absl::OkStatus();
  }
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (!entry.starts_with(kName) || entry.size() == kName.size()) continue;
    return values.set("state_dir", std::string(entry.substr(kName.size())), "PLEXRL_DATA");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Loaded> load(std::span<const Row> table, std::span<const std::string> other_sections,
                            const std::function<std::string(const Values&)>& find_file, int argc,
                            const char* const* argv, const char* const* environment) {
  const std::vector<const char*> kept = without_log_by_file(environment);
  // Flags and environment first, into a scratch table: they say which file to read.
  Values scratch(table);
  absl::Status status = apply_environment(scratch, kept.data());
  if (!status.ok()) return status;
  absl::StatusOr<CommandLine> line = apply_flags(scratch, argc, argv);
  if (!line.ok()) return line.status();

  Loaded loaded{Values(table), *std::move(line), find_file(scratch)};
  if (!loaded.file.empty()) {
    status = apply_file(loaded.values, loaded.file, other_sections);
    if (!status.ok()) return status;
  }
  status = apply_data(loaded.values, kept.data());
  if (!status.ok()) return status;
  status = apply_environment(loaded.values, kept.data());
  if (!status.ok()) return status;
  line = apply_flags(loaded.values, argc, argv);
  if (!line.ok()) return line.status();
  return loaded;
}

}  // namespace plexrl::nodemgr::settings
