// Teams and quotas as the administration socket tells of them, and changes them.
#include <algorithm>
#include <iterator>
#include <map>

#include "nodemgr/admin_actions.h"
#include "nodemgr/admin_parts.h"
#include "nodemgr/admission.h"
#include "nodemgr/log.h"
#include "nodemgr/recovery.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/nearest.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 56;
constexpr char kAsInFile[] = "file";

void add_quotas(Json& json, const Node& node, const QuotaChanges::Whose& whose, Quotas quotas) {
  json["changed"] = Json::array();
  for (const Tier tier : kTiers) {
    const auto& quota = quota_of(quotas, tier);
    json[cat(tier_name(tier), "_bytes")] = quota ? Json(*quota) : Json(nullptr);
    if (node.quota_changes.has(whose, tier)) json["changed"].push_back(tier_name(tier));
  }
}

absl::StatusOr<QuotaChanges::Whose> whose_limits(const Node& node, const Json& request) {
  auto each = request.find("each_job");
  if (each != request.end() && *each == true) return QuotaChanges::Whose();
  auto word = request.find("team");
  if (word == request.end() || !word->is_string()) {
    return invalid("limits are changed of a \"team\", or with \"each_job\": true");
  }
  const auto name = word->get<std::string>();
  if (node.teams.find(name) != nullptr) return QuotaChanges::Whose(name);
  std::vector<std::string> names;
  const std::vector<Team>& all = node.teams.all();
  std::transform(all.begin(), all.end(), std::back_inserter(names),
                 [](const Team& team) { return team.name; });
  const std::string nearest = settings::nearest_name(name, names);
  return invalid("no [[team]] of the settings file has the name '", name, "'",
                 nearest.empty() ? "" : cat(", did you mean '", nearest, "'?"));
}

/// Applies one value: bytes, null for no quota, "file" for that of the settings file.
absl::Status change(QuotaChanges& changes, const QuotaChanges::Key& key, const Json& value) {
  if (value.is_null()) {
    changes.set(key.first, key.second, std::nullopt);
  } else if (value == kAsInFile) {
    changes.take_back(key.first, key.second);
  } else if (value.is_number_unsigned() && value.get<std::uint64_t>() <= kMostBytes) {
    changes.set(key.first, key.second, value.get<std::uint64_t>());
  } else {
    return invalid("a limit is a number of bytes, null for none, or \"file\"");
  }
  return absl::OkStatus();
}

}  // namespace

Json teams_json(const AdminContext& context) {
  struct Had {
    int jobs = 0;
    std::optional<double> share;
  };
  std::map<std::string, Had> had;
  const Node& node = context.node;
  for (const auto& [key, job] : node.jobs) {
    Had& its = had[job->team];
    ++its.jobs;
    const std::optional<double> share = node.usage.job(key, context.now).share_ratio;
    if (share) its.share = its.share.value_or(0) + *share;
  }
  Json teams = Json::array();
  for (const Team& team : node.teams.all()) {
    const Had& its = had[team.name];
    const QuotaUse use = quota_use(node, team);
    Json json;
    json["name"] = team.name;
    json["weight"] = team.weight;
    json["members"] = team.members.empty() ? Json() : Json(team.members);
    json["priority_max"] = team.priority_max;
    json["max_slowdown"] = team.max_slowdown != 0 ? Json(team.max_slowdown) : Json();
    add_quotas(json, node, team.name, use.quotas());
    json["hbm_promised_bytes"] = use.in_hbm();
    json["promised_bytes"] = use.outside();
    json["jobs"] = its.jobs;
    json["share_ratio"] = or_null(its.share);
    teams.push_back(json);
  }
  return teams;
}

void add_limits(Json& json, const AdminContext& context) {
  const Node& node = context.node;
  json["teams"] = teams_json(context);
  add_quotas(json["each_job"], node, std::nullopt,
             node.quota_changes.over(std::nullopt, node.options.job_quotas));
}

Json quotas_json(const AdminContext& context, const Job& job) {
  Json lines = Json::array();
  for (const QuotaUse& use : quotas_of(context.node, job)) {
    for (const std::string& line : use.lines()) lines.push_back(line);
  }
  return lines;
}

absl::Status set_limits(const AdminActions& actions, const Json& request) {
  Node& node = actions.node;
  const absl::StatusOr<QuotaChanges::Whose> found = whose_limits(node, request);
  if (!found.ok()) return found.status();
  const QuotaChanges::Whose& whose = *found;
  const Json& set = request.at("set");
  if (!set.is_object() || set.empty()) return invalid("\"set\" names no limit: hbm, host, disk");
  QuotaChanges changes = node.quota_changes;
  std::vector<QuotaChanges::Key> keys;
  for (const auto& [name, value] : set.items()) {
    const auto* const tier = std::find_if(std::begin(kTiers), std::end(kTiers),
                                          [&](Tier one) { return tier_name(one) == name; });
    if (tier == std::end(kTiers)) return invalid("no limit '", name, "': hbm, host or disk");
    keys.emplace_back(whose, *tier);
    const absl::Status status = change(changes, keys.back(), value);
    if (!status.ok()) return status;
  }
  node.quota_changes = std::move(changes);
  for (const QuotaChanges::Key& key : keys) {
    node.journal_append(quota_record(node.quota_changes, key));
    log_line(LogLevel::kInfo, "admin",
             cat("limits of ", whose ? cat("team='", *whose, "'") : "each job", " ",
                 tier_name(key.second), "=", set[tier_name(key.second)].dump()));
  }
  actions.jobs.admit_waiting();
  actions.leases.step();
  return absl::OkStatus();
}

}  // namespace plexrl::nodemgr
