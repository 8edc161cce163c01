#include "tools/run/admission.h"

#include "absl/strings/str_cat.h"
#include "nodemgr/ids.h"
#include "tools/cli/driver_search.h"
#include "tools/cli/private_folder.h"
#include "tools/cli/socket_path.h"

namespace plexrl::run {
namespace {

// A manager that is ending may still take a connection, and so may one that is being killed.
constexpr int kMaxAttempts = 5;

wire::JobSubmit submission(const Options& options) {
  wire::JobSubmit job{};
  options.name.copy(job.name, sizeof job.name - 1);
  options.team.copy(job.team, sizeof job.team - 1);
  job.priority = options.priority;
  job.flags = options.no_wait ? std::uint32_t{wire::kJobNoWait} : 0;
  if (options.exports_are_real) job.flags |= wire::kJobExportReal;
  if (options.may_be_checkpointed) job.flags |= wire::kJobCheckpoint;
  job.memory_bytes = options.memory_bytes;
  job.max_wait_ns = options.max_wait_ns;
  job.max_slowdown = options.max_slowdown;
  return job;
}

// The manager outlives the job, so it gets nothing of the job's identity; nor does it speak for a
// service of systemd's that plexrl-run is part of.
EnvBlock manager_env(const EnvBlock& job_env) {
  EnvBlock env = job_env;
  leave_job(env);
  for (const char* name : {"PLEXRL_TEAM", "PLEXRL_PRIORITY", "PLEXRL_MEMORY", "PLEXRL_EXPORT",
                           "PLEXRL_EVICT", "PLEXRL_SOCKET", "NOTIFY_SOCKET"}) {
    env.unset(name);
  }
  // For a job it may name files ("pager:debug"); the manager knows plain levels only.
  const char* log = env.get("PLEXRL_LOG");
  if (log && std::string(log).find(':') != std::string::npos) env.unset("PLEXRL_LOG");
  return env;
}

struct Connected {
  ManagerLink link;
  std::string socket;
  std::optional<ManagerStart> start;
};

absl::StatusOr<Connected> find_manager(const Options& options,
                                       const cli::Installation& installation, const EnvBlock& env) {
  const cli::Env lookup = [&env](const char* name) { return env.get(name); };
  const auto places = cli::socket_paths(lookup, options.simgpu);
  absl::Status problem;
  for (const cli::SocketPath& place : places) {
    if (place.is_system) {
      auto link = ManagerLink::connect(place.path);
      if (link.ok()) return Connected{std::move(*link), place.path, std::nullopt};
      problem = link.status();
      continue;
    }
    ManagerStart start{.executable = installation.manager,
                       .socket = place.path,
                       .state = cli::state_folder(lookup, options.simgpu),
                       .env = manager_env(env)};
    // What the user names may be served by somebody else; the user's own place may not.
    const char* const named = env.get("PLEXRL_SOCKET");
    const bool is_named = named != nullptr && *named != '\0';
    const auto why = is_named ? std::nullopt : cli::why_not_private(cli::folder_of(place.path));
    if (why) return absl::PermissionDeniedError(*why);
    auto link = ManagerLink::connect(place.path);
    const bool can_start = absl::IsNotFound(link.status()) || absl::IsUnavailable(link.status());
    if (can_start) {
      if (cli::find_cuda_driver(env.get("LD_LIBRARY_PATH")).empty()) {
        return absl::UnavailableError("there is no CUDA driver here (libcuda.so.1 not found)");
      }
      link = connect_or_start(start);
    }
    if (!link.ok()) return link.status();
    return Connected{std::move(*link), place.path, std::move(start)};
  }
  return absl::UnavailableError(absl::StrCat("no node manager answers (", problem.message(), ")"));
}

// Waits for the verdict. Unavailable: the manager went away before it gave one; `say` was called
// when the job had been put into its queue.
absl::StatusOr<wire::JobAdmitted> wait_for_verdict(
    ManagerLink& link, const std::function<void(const std::string&)>& say) {
  std::string last_notice;
  for (;;) {
    const auto answer = link.receive();
    if (!answer.ok()) return answer.status();
    switch (answer->kind) {
      case ManagerLink::Answer::Kind::kAdmitted:
        return answer->admitted;
      case ManagerLink::Answer::Kind::kQueued:
        if (answer->text != last_notice) say("waiting: " + answer->text);
        last_notice = answer->text;
        break;
      case ManagerLink::Answer::Kind::kRefused:
        return absl::ResourceExhaustedError(answer->text);
      case ManagerLink::Answer::Kind::kError:
        return absl::FailedPreconditionError(answer->text);
    }
  }
}

}  // namespace

absl::StatusOr<Admission> get_admitted(const Options& options,
                                       const cli::Installation& installation, const EnvBlock& env,
                                       const std::function<void(const std::string&)>& say) {
  const wire::JobSubmit submit = submission(options);
  const char* const around = env.get("PLEXRL_JOB_ID");
  const auto parent = nodemgr::parse_id(around ? around : "");
  absl::Status problem;
  for (int failures = 0; failures < kMaxAttempts; ++failures) {
    auto manager = find_manager(options, installation, env);
    if (!manager.ok()) return manager.status();
    problem = parent ? manager->link.name_parent({*parent}) : absl::OkStatus();
    if (problem.ok()) problem = manager->link.submit(submit);
    if (!problem.ok()) continue;
    const auto admitted = wait_for_verdict(manager->link, [&](const std::string& notice) {
      failures = -1;  // in the queue of a manager that worked: however many of them are killed
      say(notice);
    });
    if (admitted.ok()) {
      const bool is_another_users = manager->link.is_another_users();
      return Admission{std::move(manager->link),  manager->socket, is_another_users,
                       std::move(manager->start), submit,          *admitted};
    }
    problem = admitted.status();
    if (!absl::IsUnavailable(problem)) break;
  }
  return problem;
}

void describe_job(const Options& options, const Admission& admission, EnvBlock& env) {
  env.set("PLEXRL_JOB_ID", nodemgr::id_text(admission.admitted.job));
  env.set("PLEXRL_JOB_SECRET", nodemgr::id_text(admission.admitted.secret));
  env.set("PLEXRL_JOB_NAME", options.name);
  env.set("PLEXRL_TEAM", options.team);
  env.set("PLEXRL_PRIORITY", std::to_string(options.priority));
  env.set("PLEXRL_MEMORY", std::to_string(admission.admitted.promised_bytes));
  env.set("PLEXRL_EXPORT", options.exports_are_real ? "real" : "job");
  env.set("PLEXRL_EVICT", options.may_be_checkpointed ? "checkpoint" : "page");
  env.set("PLEXRL_SOCKET", admission.socket);
}

}  // namespace plexrl::run
