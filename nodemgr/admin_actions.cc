#include "nodemgr/admin_actions.h"

#include "nodemgr/admin_parts.h"
#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/recovery.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

absl::StatusOr<Job*> job_of(Node& node, const Json& request) {
  auto word = request.find("job");
  const std::string text =
      word != request.end() && word->is_string() ? word->get<std::string>() : "";
  const std::optional<wire::Id128> id = parse_id(text);
  Job* job = id ? node.find_job(*id) : nullptr;
  if (job == nullptr) return invalid("no job has the id '", text, "'");
  return job;
}

absl::Status set_priority(Job& job, const Json& request) {
  auto number = request.find("priority");
  const bool is_whole = number != request.end() && number->is_number_integer();
  const std::int64_t priority = is_whole ? number->get<std::int64_t>() : -1;
  if (priority < 0 || priority > 100)
    return invalid("priority is not a whole number from 0 to 100");
  job.priority = static_cast<int>(priority);
  return absl::OkStatus();
}

void record(const AdminActions& actions, const Job& job, const std::string& verb) {
  if (job.admitted) actions.node.journal_append(job_record(job));
  TraceDecision decision;
  decision.kind = verb;
  decision.job_id = id_text(job.id);
  decision.reason = "an administrator";
  decision.figures = {{"priority", static_cast<double>(job.priority)}};
  actions.node.trace->add(decision);
  log_line(LogLevel::kInfo, "admin",
           cat(verb, " job='", job.name, "' id=", id_text(job.id), " priority=", job.priority));
}

absl::Status change_job(const AdminActions& actions, Job& job, const std::string& verb,
                        const Json& request) {
  if (verb == "priority") {
    absl::Status status = set_priority(job, request);
    if (!status.ok()) return status;
  } else {
    job.paused = verb == "pause";
  }
  record(actions, job, verb);
  actions.leases.job_changed(job);
  actions.jobs.admit_waiting();
  actions.leases.step();
  return absl::OkStatus();
}

void set_draining(const AdminActions& actions, bool draining) {
  actions.node.draining = draining;
  actions.node.journal_append(drain_record(actions.node));
  log_line(LogLevel::kInfo, "admin",
           draining ? "drained: no new job is admitted" : "not drained any more");
  actions.jobs.admit_waiting();
  actions.leases.step();
}

}  // namespace

std::optional<std::string> admin_act(const AdminContext& context, const AdminActions& actions,
                                     const std::string& text) {
  const Json request = Json::parse(text, nullptr, false);
  if (!request.is_object() || !request.contains("verb") || !request["verb"].is_string()) {
    return std::nullopt;
  }
  const auto verb = request["verb"].get<std::string>();
  if (verb == "drain" || verb == "undrain") {
    set_draining(actions, verb == "drain");
    return admin_outcome(context, absl::OkStatus());
  }
  if (verb != "pause" && verb != "resume" && verb != "priority") return std::nullopt;
  absl::StatusOr<Job*> job = job_of(actions.node, request);
  if (!job.ok()) return admin_outcome(context, job.status());
  absl::Status status = change_job(actions, **job, verb, request);
  return admin_outcome(context, status, *job);
}

}  // namespace plexrl::nodemgr
