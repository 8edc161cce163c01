#include "nodemgr/teams.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/nearest.h"
#include "nodemgr/settings/toml_read.h"
#include "nodemgr/settings/values.h"
#include "shim/wire.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::size_t kMaxName = sizeof(wire::JobSubmit::team) - 1;
const std::vector<std::string> kKeys = {"name", "weight", "members", "priority_max",
                                        "hbm",  "host",   "disk",    "max_slowdown"};

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += cat(text.empty() ? "" : ", ", name);
  return text;
}

/// One `[[team]]` table, key by key.
class Reader {
 public:
  Reader(const std::string& path, const toml::table& table) : path_(path), table_(table) {}

  absl::StatusOr<Team> read() {
    for (const auto& [key, node] : table_) {
      const std::string_view name = key.str();
      const std::string place = settings::place_of(path_, node);
      absl::Status status = take(name, node);
      if (!status.ok()) return invalid(place, ": ", message_of(status));
    }
    if (team_.name.empty())
      return invalid(settings::place_of(path_, table_), ": a team needs a name");
    return team_;
  }

 private:
  absl::Status take(std::string_view key, const toml::node& node) {
    if (key == "name") return take_name(node);
    if (key == "members") return take_members(node);
    if (key == "weight") {
      return take_number(
          key, node, team_.weight, [](double v) { return v > 0; }, "above 0");
    }
    if (key == "max_slowdown") {
      return take_number(
          key, node, team_.max_slowdown, [](double v) { return v >= 1; }, "of 1 or more");
    }
    if (key == "priority_max") return take_priority(node);
    if (key == "hbm") return take_bytes(key, node, team_.quotas.hbm);
    if (key == "host") return take_bytes(key, node, team_.quotas.host);
    if (key == "disk") return take_bytes(key, node, team_.quotas.disk);
    const std::string nearest = settings::nearest_name(key, kKeys);
    return invalid("unknown key '", key, "'",
                   nearest.empty() ? "" : cat(", did you mean '", nearest, "'?"));
  }

  absl::Status take_name(const toml::node& node) {
    const auto* text = node.as_string();
    if (text == nullptr || text->get().empty()) return invalid("name is not text");
    if (text->get().size() > kMaxName) {
      return invalid("name '", text->get(), "' is longer than ", kMaxName, " bytes");
    }
    team_.name = text->get();
    return absl::OkStatus();
  }

  absl::Status take_members(const toml::node& node) {
    const auto* list = node.as_array();
    if (list == nullptr || list->empty()) {
      return invalid(
          "members is not a list of users: write members = [\"alice\", \"bob\"], or "
          "leave it out for everybody");
    }
    for (const toml::node& member : *list) {
      const auto* text = member.as_string();
      if (text == nullptr || text->get().empty()) return invalid("a member is not text");
      team_.members.push_back(text->get());
    }
    return absl::OkStatus();
  }

  template <typename Allowed>
  absl::Status take_number(std::string_view key, const toml::node& node, double& value,
                           Allowed allowed, const char* range) {
    const std::optional<double> number =
        node.is_number() ? node.value<double>() : std::optional<double>();
    if (!number || !std::isfinite(*number) || !allowed(*number)) {
      return invalid(key, " is not a number ", range);
    }
    value = *number;
    return absl::OkStatus();
  }

  absl::Status take_priority(const toml::node& node) {
    const auto* number = node.as_integer();
    if (number == nullptr || number->get() < 0 || number->get() > 100) {
      return invalid("priority_max is not a whole number from 0 to 100");
    }
    team_.priority_max = static_cast<int>(number->get());
    return absl::OkStatus();
  }

  static absl::Status take_bytes(std::string_view key, const toml::node& node,
                                 std::optional<std::uint64_t>& bytes) {
    const auto* text = node.as_string();
    if (text == nullptr) return invalid(key, " is not a size in quotes, as in \"8GiB\"");
    absl::StatusOr<std::uint64_t> parsed = settings::parse_bytes(text->get());
    if (!parsed.ok()) return invalid(key, ": ", message_of(parsed.status()));
    bytes = *parsed;
    return absl::OkStatus();
  }

  const std::string& path_;
  const toml::table& table_;
  Team team_;
};

}  // namespace

bool Team::has_member(std::string_view user) const {
  return members.empty() || std::find(members.begin(), members.end(), user) != members.end();
}

absl::StatusOr<Teams> Teams::from_file(const std::string& path) {
  absl::StatusOr<toml::table> root = settings::read_toml(path);
  if (!root.ok()) return root.status();
  Teams teams;
  const toml::node* section = root->get("team");
  if (section == nullptr) return teams;
  const std::string place = settings::place_of(path, *section);
  const toml::array* tables = section->as_array();
  if (tables == nullptr) return invalid(place, ": teams are a list: write [[team]]");
  for (const toml::node& node : *tables) {
    const toml::table* table = node.as_table();
    if (table == nullptr) return invalid(place, ": teams are tables: write [[team]]");
    absl::StatusOr<Team> team = Reader(path, *table).read();
    if (!team.ok()) return team.status();
    if (teams.find(team->name) != nullptr) {
      return invalid(settings::place_of(path, *table), ": team '", team->name, "' is there twice");
    }
    teams.teams_.push_back(*std::move(team));
  }
  return teams;
}

absl::StatusOr<std::string> Teams::assign(const std::string& team, std::string_view user,
                                          int priority) const {
  if (teams_.empty()) return team;
  const Team* its = find(team);
  if (team.empty()) {
    const auto listing = std::find_if(teams_.begin(), teams_.end(), [&](const Team& one) {
      return !one.members.empty() && one.has_member(user);
    });
    if (listing == teams_.end()) return team;
    its = &*listing;
  }
  if (its == nullptr) {
    std::vector<std::string> names;
    std::transform(teams_.begin(), teams_.end(), std::back_inserter(names),
                   [](const Team& one) { return one.name; });
    const std::string nearest = settings::nearest_name(team, names);
    return invalid("this node has no team '", team, "'",
                   nearest.empty() ? "" : cat(", did you mean '", nearest, "'?"), " (it has ",
                   listed(names), ")");
  }
  if (!its->has_member(user)) {
    return invalid("user '", user, "' is no member of team '", its->name,
                   "': leave --team out, or ask an administrator");
  }
  if (priority > its->priority_max) {
    return invalid("priority ", priority, " is above what team '", its->name,
                   "' may have: give "
                   "--priority ",
                   its->priority_max, " or less");
  }
  return its->name;
}

const Team* Teams::find(std::string_view name) const {
  const auto found = std::find_if(teams_.begin(), teams_.end(),
                                  [&](const Team& team) { return team.name == name; });
  return found == teams_.end() ? nullptr : &*found;
}

std::map<std::string, double> Teams::weights_after(const Teams& before) const {
  std::map<std::string, double> weights;
  for (const Team& team : before.teams_) weights[team.name] = 1;
  for (const Team& team : teams_) weights[team.name] = team.weight;
  return weights;
}

}  // namespace plexrl::nodemgr
