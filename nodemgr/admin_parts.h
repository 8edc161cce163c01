#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "nodemgr/admin_actions.h"

/// The parts of the administration socket's answers, as docs/contract.md describes them. JSON
/// leaves the daemon here only. Ratios, seconds and bytes; what is not known is null.
namespace plexrl::nodemgr {

using Json = nlohmann::ordered_json;

Json jobs_json(const AdminContext& context);
Json gpus_json(const AdminContext& context);
/// One of the jobs above.
Json job_json(const AdminContext& context, const Job& job);
/// The last decisions about the job's gangs; `text` where there are none to tell of.
Json explain_json(const AdminContext& context, const Job& job);
/// Adds `memory`, a row for each kind of memory of each process, and `processes`, what the driver
/// shows for each beside the sum of its rows in HBM.
void add_memory(Json& json, const AdminContext& context);
/// The teams of the settings file, with what their jobs have.
Json teams_json(const AdminContext& context);
/// Adds `teams` and `each_job`, the quotas of each job.
void add_limits(Json& json, const AdminContext& context);
/// A line for each quota that the job is under.
Json quotas_json(const AdminContext& context, const Job& job);

/// Adds `usage`, what was booked from the request's `since` (Unix seconds) on, by its `by`.
[[nodiscard]] absl::Status add_usage(Json& json, const AdminContext& context, const Json& request);

/// Carries out {"verb":"limits", "team": NAME or "each_job": true, "set": {"hbm": bytes, null for
/// no quota, or "file" for that of the settings file, …}}.
[[nodiscard]] absl::Status set_limits(const AdminActions& actions, const Json& request);

double in_seconds(std::chrono::nanoseconds time);
Json or_null(const std::optional<double>& value);
/// UTC, whole seconds.
std::string rfc3339(std::int64_t wall_ns);
/// The GPUs of a mask, by index.
Json gpu_list(std::uint64_t mask);

/// "process N is stopped …" with the remedy, of the gang's first process that is; else empty.
std::string stopped_words(const Node& node, const LeaseGang& gang);

}  // namespace plexrl::nodemgr
