#include "nodemgr/admin_actions.h"

#include <algorithm>

#include "nodemgr/admin_parts.h"
#include "nodemgr/clock.h"
#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/recovery.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::chrono::nanoseconds kLongestAlone = std::chrono::hours(365 * 24);

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

absl::Status set_alone(Job& job, const Json& request) {
  auto number = request.find("alone_ns");
  const bool is_whole = number != request.end() && number->is_number_integer();
  const std::int64_t length = is_whole ? number->get<std::int64_t>() : -1;
  if (length < 0 || length > kLongestAlone.count()) {
    return invalid("alone_ns is not a whole number of nanoseconds from 0 to those of a year");
  }
  job.alone_until =
      length == 0 ? std::chrono::nanoseconds{0} : boot_now() + std::chrono::nanoseconds(length);
  return absl::OkStatus();
}

void record(const AdminActions& actions, const Job& job, const std::string& verb) {
  if (job.admitted) actions.node.journal_append(job_record(job));
  TraceDecision decision;
  decision.kind = verb;
  decision.job_id = id_text(job.id);
  decision.reason = "an administrator";
  decision.figures = {{"priority", static_cast<double>(job.priority)}};
  if (verb == "hold") {
    const auto length = std::max(job.alone_until - boot_now(), std::chrono::nanoseconds{0});
    decision.figures.push_back({"alone_ns", static_cast<double>(length.count())});
  }
  actions.node.trace->add(decision);
  log_line(LogLevel::kInfo, "admin",
           cat(verb, " job='", job.name, "' id=", id_text(job.id), " priority=", job.priority));
}

absl::Status change_job(const AdminActions& actions, Job& job, const std::string& verb,
                        const Json& request) {
  absl::Status status;
  if (verb == "priority") {
    status = set_priority(job, request);
  } else if (verb == "hold") {
    status = set_alone(job, request);
  } else {
    job.paused = verb == "pause";
  }
  if (!status.ok()) return status;
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
  if (verb == "limits" && request.contains("set")) {
    const absl::Status status = set_limits(actions, request);
    return status.ok() ? admin_answer(context, text) : admin_outcome(context, status);
  }
  if (verb != "pause" && verb != "resume" && verb != "priority" && verb != "hold") {
    return std::nullopt;
  }
  absl::StatusOr<Job*> job = job_of(actions.node, request);
  if (!job.ok()) return admin_outcome(context, job.status());
  absl::Status status = change_job(actions, **job, verb, request);
  return admin_outcome(context, status, *job);
}

}  // namespace plexrl::nodemgr
