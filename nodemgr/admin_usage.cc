// plexrl-ctl usage: the accounts as JSON.
#include "nodemgr/accounts.h"
#include "nodemgr/admin_parts.h"
#include "nodemgr/clock.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr double kSecond = 1e9;

absl::StatusOr<Accounts::By> by_of(const Json& request) {
  const Json word = request.value("by", Json("team"));
  if (word == "team") return Accounts::By::kTeam;
  if (word == "user") return Accounts::By::kUser;
  if (word == "job") return Accounts::By::kJob;
  return invalid("by is not \"team\", \"user\" or \"job\"");
}

Json row_json(const Accounts::Row& row, Accounts::By by) {
  Json json;
  if (by == Accounts::By::kJob) {
    json["job"] = row.owner.job;
    json["name"] = row.owner.name;
  }
  if (by != Accounts::By::kTeam) json["user"] = row.owner.user;
  if (by != Accounts::By::kUser) json["team"] = row.owner.team;
  const Usage::Totals& totals = row.totals;
  json["jobs"] = row.jobs;
  json["held_gpu_s"] = totals.held_gpu_ns / kSecond;
  json["needed_gpu_s"] = totals.needed_gpu_ns / kSecond;
  json["saved_gpu_s"] = (totals.needed_gpu_ns - totals.held_gpu_ns) / kSecond;
  json["slowdown_ratio"] = or_null(totals.slowdown_ratio());
  json["wait_s"] = in_seconds(totals.waited);
  return json;
}

}  // namespace

absl::Status add_usage(Json& json, const AdminContext& context, const Json& request) {
  const Node& node = context.node;
  const absl::StatusOr<Accounts::By> by = by_of(request);
  if (!by.ok()) return by.status();
  const Json since = request.value("since", Json(0));
  if (!since.is_number_integer() || since.get<std::int64_t>() < 0) {
    return invalid("since is not a time in whole seconds since 1970");
  }
  if (node.accounts == nullptr) return absl::UnavailableError(node.accounts_problem);
  absl::StatusOr<std::vector<Accounts::Row>> rows =
      node.accounts->sums(since.get<std::int64_t>(), *by);
  if (!rows.ok()) return rows.status();
  json["since"] = rfc3339(hour_of(since.get<std::int64_t>()) * 1'000'000'000);
  json["until"] = rfc3339(wall_now_ns());
  json["by"] = *by == Accounts::By::kTeam ? "team" : *by == Accounts::By::kUser ? "user" : "job";
  json["unwritten"] = node.accounts_problem.empty() ? Json(nullptr) : Json(node.accounts_problem);
  json["usage"] = Json::array();
  for (const Accounts::Row& row : *rows) json["usage"].push_back(row_json(row, *by));
  return absl::OkStatus();
}

}  // namespace plexrl::nodemgr
