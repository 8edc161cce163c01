#include "nodemgr/admin_answers.h"

#include <time.h>
#include <unistd.h>

#include "nodemgr/admin_learned.h"
#include "nodemgr/admin_parts.h"
#include "nodemgr/clock.h"
#include "nodemgr/ids.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/nearest.h"

namespace plexrl::nodemgr {
namespace {

constexpr int kSchema = 1;

Json manager_json(const AdminContext& context) {
  const Node& node = context.node;
  auto uptime = context.now - context.started;
  Json json;
  json["pid"] = ::getpid();
  json["generation"] = node.generation;
  json["socket"] = context.socket;
  json["started"] = rfc3339(wall_now_ns() - uptime.count());
  json["started_mono_ns"] = context.started.count();
  json["uptime_s"] = in_seconds(uptime);
  json["trace"] = node.trace->run_folder();
  json["trace_lost_records"] = node.trace->lost_records();
  json["journal_ok"] = !node.journal_failed;
  json["accounts_problem"] =
      node.accounts_problem.empty() ? Json(nullptr) : Json(node.accounts_problem);
  json["host_budget_bytes"] = node.ledger.host_budget();
  json["host_promised_bytes"] = node.ledger.host_needed();
  json["host_used_bytes"] = node.slabs->bytes_in_use();
  json["disk_budget_bytes"] = node.ledger.disk();
  json["disk_used_bytes"] = node.disk != nullptr ? node.disk->store().bytes_in_use() : 0;
  json["disk_dir"] = node.disk != nullptr ? Json(node.disk->folder()) : Json(nullptr);
  json["draining"] = node.draining;
  json["observer"] = nullptr;
  if (context.observer != nullptr && context.observer->is_connected()) {
    json["observer"] = {{"pid", context.observer->pid()}, {"lacks", context.observer->lacks()}};
  }
  json["grants"] = context.leases.grants();
  json["without_effect"] = node.without_effect;
  return json;
}

Json head(const AdminContext& context) {
  Json json;
  json["schema"] = kSchema;
  json["simulated"] = context.node.simulated;
  json["node"] = context.node.options.node;
  return json;
}

std::string verb_of(const std::string& request) {
  Json parsed = Json::parse(request, nullptr, false);
  if (!parsed.is_object()) return "";
  auto verb = parsed.find("verb");
  return verb != parsed.end() && verb->is_string() ? verb->get<std::string>() : "";
}

const Job* find_job(const Node& node, const std::string& id) {
  for (const auto& [key, job] : node.jobs) {
    if (id_text(job->id) == id) return job.get();
  }
  return nullptr;
}

std::string error_line(const AdminContext& context, const std::string& text) {
  Json json = head(context);
  json["error"] = text;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string rfc3339(std::int64_t wall_ns) {
  time_t seconds = wall_ns / 1'000'000'000;
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

bool is_reload(const std::string& request) { return verb_of(request) == "reload"; }
bool is_usage(const std::string& request) { return verb_of(request) == "usage"; }

std::string admin_outcome(const AdminContext& context, const absl::Status& status,
                          const Job* changed) {
  if (!status.ok()) return error_line(context, message_of(status));
  Json json = head(context);
  json["done"] = true;
  if (changed != nullptr) json["jobs"] = Json::array({job_json(context, *changed)});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string admin_answer(const AdminContext& context, const std::string& request) {
  std::string verb = verb_of(request);
  if (verb.empty()) {
    return error_line(context, "a request is one line such as {\"verb\":\"jobs\"}");
  }
  Json json = head(context);
  if (verb == "status") {
    json["manager"] = manager_json(context);
    json["gpus"] = gpus_json(context);
    json["teams"] = teams_json(context);
    json["jobs"] = jobs_json(context);
  } else if (verb == "limits") {
    add_limits(json, context);
  } else if (verb == "jobs") {
    json["jobs"] = jobs_json(context);
  } else if (verb == "gpus") {
    json["gpus"] = gpus_json(context);
  } else if (verb == "memory") {
    add_memory(json, context);
  } else if (verb == "learned") {
    add_learned(json, context);
  } else if (verb == "usage") {
    const absl::Status status = add_usage(json, context, Json::parse(request, nullptr, false));
    if (!status.ok()) return error_line(context, message_of(status));
  } else if (verb == "explain") {
    const Json parsed = Json::parse(request, nullptr, false);
    auto word = parsed.find("job");
    const std::string text =
        word != parsed.end() && word->is_string() ? word->get<std::string>() : "";
    const Job* job = find_job(context.node, text);
    if (job == nullptr) return error_line(context, cat("no job has the id '", text, "'"));
    json["explain"] = explain_json(context, *job);
  } else {
    const std::vector<std::string> verbs = {"status",  "jobs",     "gpus",  "memory", "limits",
                                            "learned", "explain",  "usage", "reload", "pause",
                                            "resume",  "priority", "hold",  "drain",  "undrain"};
    std::string nearest = settings::nearest_name(verb, verbs);
    return error_line(context, cat("unknown verb '", verb, "'",
                                   nearest.empty() ? "" : cat(", did you mean '", nearest, "'?")));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace plexrl::nodemgr
