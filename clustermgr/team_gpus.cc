#include "clustermgr/team_gpus.h"

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/toml_read.h"

namespace plexrl::clustermgr {
namespace {

using nodemgr::invalid;
using nodemgr::settings::place_of;

constexpr std::int64_t kMostGpus = 1'000'000;

absl::Status read_team(const std::string& path, const toml::table& table,
                       std::map<std::string, int>& teams) {
  std::string name;
  std::int64_t gpus = -1;
  for (const auto& [key, node] : table) {
    if (key.str() == "name") {
      name = node.value_or(std::string());
    } else if (key.str() == "gpus") {
      gpus = node.is_integer() ? node.value_or(std::int64_t{-1}) : -1;
    } else {
      return nodemgr::settings::unknown_name("key", key.str(), place_of(path, node),
                                             {"name", "gpus"});
    }
  }
  const std::string place = place_of(path, table);
  if (name.empty()) return invalid(place, ": a team needs a name");
  if (gpus < 0 || gpus > kMostGpus) {
    return invalid(place, ": team '", name, "' needs gpus, a whole number from 0 to ", kMostGpus);
  }
  if (!teams.emplace(name, static_cast<int>(gpus)).second) {
    return invalid(place, ": team '", name, "' is there twice");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, int>> read_team_gpus(const std::string& path) {
  std::map<std::string, int> teams;
  if (path.empty()) return teams;
  const absl::StatusOr<toml::table> file = nodemgr::settings::read_toml(path);
  if (!file.ok()) return file.status();
  const toml::node* const found = file->get("team");
  if (found == nullptr) return teams;
  const toml::array* const list = found->as_array();
  if (list == nullptr) return invalid(place_of(path, *found), ": write [[team]], a table for each");
  for (const toml::node& node : *list) {
    const toml::table* const table = node.as_table();
    if (table == nullptr)
      return invalid(place_of(path, node), ": write [[team]], a table for each");
    absl::Status status = read_team(path, *table, teams);
    if (!status.ok()) return status;
  }
  return teams;
}

}  // namespace plexrl::clustermgr
