// plexrl-ctl: asks a node manager what it is doing, and tells it what to do.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "absl/time/clock.h"
#include "nodemgr/settings/values.h"
#include "tools/cli/driver_search.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/installation.h"
#include "tools/cli/job_match.h"
#include "tools/cli/nearest.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/cdi.h"
#include "tools/ctl/doctor.h"
#include "tools/ctl/limits_change.h"
#include "tools/ctl/since.h"
#include "tools/ctl/verb_tls.h"
#include "tools/ctl/verbs.h"
#include "tools/ctl/which_gpu.h"

namespace plexrl::ctl {
namespace {

constexpr char kFooter[] = R"(
JOB is an id, a unique beginning of one, or a job's name. Sizes are in binary units (1 KiB = 1024 bytes); --json gives
bytes and seconds. Without --simgpu and PLEXRL_SOCKET the first manager that answers is asked: the system's, this user's,
this user's simulated ones.

Examples:
  plexrl-ctl doctor
  plexrl-ctl status
  plexrl-ctl memory ppo --json
  plexrl-ctl priority ppo 80
  plexrl-ctl hold ppo --exclusive 10m
  plexrl-ctl limits --team research --host 64GiB
  plexrl-ctl usage --since 7d --by user --csv

Environment: PLEXRL_SOCKET (the manager's job socket; admin.sock lies beside it), PLEXRL_SIMGPU.
Exit status: 0 done, 1 failed (doctor: found a problem), 2 wrong usage.
)";

constexpr std::string_view kHold = "hold";

struct Verb {
  const char* name;
  const char* help;
  std::string (*show)(const Json&);
  /// The array that JOB selects from, by `filter_key`; null: takes no JOB. From an array
  /// `processes` beside it too.
  const char* filtered;
  const char* filter_key;
  bool needs_job = false;       ///< JOB is what the manager is asked about, or told to change
  bool needs_priority = false;  ///< and a number follows
};

constexpr Verb kVerbs[] = {
    {"status", "the manager, its GPUs and jobs at a glance", show_status, nullptr, nullptr},
    {"jobs", "every job, or one: state, promise, where its memory is", show_jobs, "jobs", "id"},
    {"gpus", "every GPU: who holds it, who waits, how much is used", show_gpus, nullptr, nullptr},
    {"memory", "device memory by job, process and kind, and what can't be paged", show_memory,
     "memory", "job"},
    {"limits", "every team's weight, members and limits; with --team or --each-job: changes them",
     show_limits, nullptr, nullptr},
    {"usage", "GPU hours held and saved, slowdown, by team, user or job", show_usage, nullptr,
     nullptr},
    {"explain", "what was decided last about a job, why, and on which figures", show_explain,
     nullptr, nullptr, true},
    {"pause", "a job gives its GPUs back at the next cut and gets none until resumed", show_changed,
     nullptr, nullptr, true},
    {"resume", "a paused job takes part again", show_changed, nullptr, nullptr, true},
    {"priority", "a job's priority from now on", show_changed, nullptr, nullptr, true, true},
    {"hold", "a job's GPUs are its alone for a while", show_changed, nullptr, nullptr, true},
    {"drain", "no new job is admitted; those that run go on until they end", show_done, nullptr,
     nullptr},
    {"undrain", "new jobs are admitted again", show_done, nullptr, nullptr},
    {"reload", "the manager reads its settings file again; a bad file changes nothing", show_done,
     nullptr, nullptr},
    {"doctor", "whether jobs can share GPUs on this machine, and what to do where not", show_doctor,
     nullptr, nullptr},
};

/// Verbs of two words, with options of their own.
struct Group {
  const char* name;
  const char* help;
  int (*run)(int argc, char** argv);
};

int run_cluster_client(int argc, char** argv);

constexpr Group kGroups[] = {
    {"cluster", "a whole cluster: status, nodes", run_cluster_client},
    {"placement", "of a cluster's jobs: explain JOB", run_cluster_client},
    {"cdi", "containers: generate, what their runtimes are told", run_cdi},
    {"tls", "certificates of a cluster: init DIR", run_tls},
};

struct CommandLine {
  bool json = false;
  std::optional<std::string> job;
  std::string simgpu;
  int priority = 0;
  std::string alone;
  std::string since = "7d";
  std::string by = "team";
  bool csv = false;
  LimitsChange limits;
};

int complain(int status, const std::string& what) {
  std::cerr << "plexrl-ctl: " << what << "\n";
  return status;
}

void declare_usage(CLI::App& command, CommandLine& line) {
  command
      .add_option("--since", line.since,
                  "how long ago (12h), a day (2026-11-01) or a moment (RFC 3339); from the full "
                  "hour before it (default 7d; 400 days are kept)")
      ->type_name("TIME");
  command.add_option("--by", line.by, "team (default), user or job")
      ->type_name("WHOM")
      ->check(CLI::IsMember({"team", "user", "job"}));
  command.add_flag("--csv", line.csv, "comma-separated values on stdout, nothing else");
}

// Another program, so that this one starts without gRPC's libraries.
int run_cluster_client(int, char** argv) {
  const std::string program = cli::this_installation().cluster_client;
  ::execv(program.c_str(), argv);
  return complain(cli::kFailed,
                  program + " can't be started: " + std::strerror(errno) + ": is it installed?");
}

void declare(CLI::App& app, CommandLine& line) {
  app.set_version_flag("--version", "plexrl-ctl " PLEXRL_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--json", line.json, "one JSON object on stdout, nothing else");
  app.add_flag("--simgpu", line.simgpu,
               "ask the manager of a simulated GPU; --simgpu=name=N for one of several");
  for (const Verb& verb : kVerbs) {
    CLI::App* command = app.add_subcommand(verb.name, verb.help);
    if (verb.filtered) command->add_option("JOB", line.job, "only this job (default: all)");
    if (verb.needs_job) command->add_option("JOB", line.job, "which job")->required();
    if (verb.needs_priority) {
      command->add_option("N", line.priority, "0 (last) to 100 (first)")
          ->required()
          ->check(CLI::Range(0, 100));
    }
    if (verb.name == kHold) {
      command
          ->add_option("--exclusive", line.alone,
                       "for how long (10m): others give its GPUs back at the next cut, and wait; "
                       "0 ends it")
          ->type_name("TIME")
          ->required();
    }
    if (verb.show == show_usage) declare_usage(*command, line);
    if (verb.show == show_limits) line.limits.declare(*command);
  }
  for (const Group& group : kGroups) app.add_subcommand(group.name, group.help);
}

const Group* find_group(const std::string& name) {
  for (const Group& group : kGroups) {
    if (name == group.name) return &group;
  }
  return nullptr;
}

const Verb* find_verb(const std::string& name) {
  for (const Verb& verb : kVerbs) {
    if (name == verb.name) return &verb;
  }
  return nullptr;
}

// What is wrong with the verb, if anything: the first word that is no option must be one.
std::string wrong_verb(int argc, char** argv) {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  for (const Group& group : kGroups) names.emplace_back(group.name);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h" || word == "--version") return "";
    if (word.starts_with('-')) continue;
    if (find_verb(word)) return "";
    return "no verb '" + word + "'" + cli::did_you_mean(word, names) + "; try plexrl-ctl --help";
  }
  return "no verb given; try plexrl-ctl --help";
}

absl::StatusOr<std::string> find_job(const Json& answer, const std::string& word) {
  std::vector<cli::NamedJob> jobs;
  for (const Json& job : array_of(answer, "jobs")) {
    jobs.push_back({text_of(job, "id"), text_of(job, "name")});
  }
  return cli::find_job(jobs, word);
}

// Keeps what belongs to the job.
absl::Status select_job(const std::vector<std::string>& sockets, const Verb& verb,
                        const std::string& word, Json& answer) {
  absl::StatusOr<Json> jobs =
      verb.filter_key == std::string("id") ? answer : ask(sockets, {{"verb", "jobs"}});
  if (!jobs.ok()) return jobs.status();
  const auto id = find_job(*jobs, word);
  if (!id.ok()) return id.status();
  for (const char* array : {verb.filtered, "processes"}) {
    if (!answer.contains(array)) continue;
    Json kept = Json::array();
    for (const Json& row : array_of(answer, array)) {
      if (text_of(row, verb.filter_key) == *id) kept.push_back(row);
    }
    answer[array] = std::move(kept);
  }
  return absl::OkStatus();
}

// What the command line alone says; an error is wrong usage.
absl::StatusOr<Json> request_of(const Verb& verb, const CommandLine& line) {
  Json request = {{"verb", verb.name}};
  if (line.csv && line.json) {
    return absl::InvalidArgumentError("give --csv or --json, not both");
  }
  if (verb.show == show_usage) {
    const auto since = parse_since(line.since, absl::ToUnixSeconds(absl::Now()));
    if (!since.ok()) return since.status();
    request["since"] = *since;
    request["by"] = line.by;
  }
  if (verb.name == kHold) {
    const auto alone = nodemgr::settings::parse_duration(line.alone);
    if (!alone.ok()) return alone.status();
    request["alone_ns"] = alone->count();
  }
  if (verb.needs_priority) request["priority"] = line.priority;
  if (verb.show == show_limits) {
    const auto status = line.limits.add_to(request);
    if (!status.ok()) return status;
  }
  return request;
}

absl::Status name_job(const std::vector<std::string>& sockets, const std::string& word,
                      Json& request) {
  const auto jobs = ask(sockets, {{"verb", "jobs"}});
  if (!jobs.ok()) return jobs.status();
  const auto id = find_job(*jobs, word);
  if (!id.ok()) return id.status();
  request["job"] = *id;
  return absl::OkStatus();
}

int print(const std::string& text) {
  std::cout << text;
  return std::cout.flush() ? cli::kDone : complain(cli::kFailed, "stdout: can't be written");
}

// The one verb that looks for itself.
int examine(const cli::Env& env, const std::optional<std::string>& simgpu,
            const std::vector<std::string>& sockets, bool json) {
  const auto value_of = [&](const char* name, const std::string& otherwise) {
    const char* const value = env(name);
    return value == nullptr || *value == '\0' ? otherwise : value;
  };
  const cli::Installation installation = cli::this_installation();
  Places places;
  places.is_simulated = simgpu.has_value();
  places.library = installation.library;
  places.state_dir = cli::state_folder(env, simgpu);
  places.lock_dir = value_of("PLEXRL_LOCK_DIR", places.lock_dir);
  places.mps_pipe = value_of("CUDA_MPS_PIPE_DIRECTORY", places.mps_pipe);
  if (simgpu) {
    // As the library below reads it; there is no other thread yet.
    setenv("PLEXRL_SIMGPU", simgpu->c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    places.driver = installation.simgpu_folder + "/libcuda.so.1";
    places.nvml = installation.simgpu_folder + "/libnvidia-ml.so.1";
  } else {
    places.driver = cli::find_cuda_driver(env("LD_LIBRARY_PATH"));
    places.nvml = "libnvidia-ml.so.1";
  }
  const DriverFacts driver = ask_driver(places);
  std::vector<Finding> findings = check_driver(places, driver);
  for (Finding& finding : check_machine(places, driver)) findings.push_back(std::move(finding));
  const absl::StatusOr<Json> manager = ask(sockets, {{"verb", "status"}});
  findings.push_back(check_observer(places, manager));
  findings.push_back(check_manager(manager));
  const Json answer = findings_json(findings);
  const int status = print(json ? answer.dump() + "\n" : show_doctor(answer));
  return status != cli::kDone ? status : has_problem(findings) ? cli::kFailed : cli::kDone;
}

const Group* group_of(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] != '-') return find_group(argv[i]);
  }
  return nullptr;
}

int run(int argc, char** argv) {
  if (const Group* const group = group_of(argc, argv)) return group->run(argc, argv);
  CLI::App app("Asks a node manager what it is doing, and tells it what to do.", "plexrl-ctl");
  CommandLine line;
  declare(app, line);
  if (const auto wrong = wrong_verb(argc, argv); !wrong.empty()) {
    return complain(cli::kUsage, wrong);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(cli::kUsage, error.what());
  }
  if (line.job && line.job->empty()) {
    return complain(cli::kUsage, "JOB is empty: give an id, the beginning of one, or a name");
  }
  const auto env = cli::process_env();
  const auto simgpu = simulated_gpu(env, line.simgpu);
  if (!simgpu.ok()) return complain(cli::kUsage, std::string(simgpu.status().message()));

  const Verb& verb = *find_verb(app.get_subcommands().front()->get_name());
  const auto sockets = admin_sockets(env, *simgpu);
  if (verb.show == show_doctor) return examine(env, *simgpu, sockets, line.json);
  auto request = request_of(verb, line);
  if (!request.ok()) return complain(cli::kUsage, std::string(request.status().message()));
  if (verb.needs_job) {
    const auto status = name_job(sockets, *line.job, *request);
    if (!status.ok()) return complain(cli::kFailed, std::string(status.message()));
  }
  auto answer = ask(sockets, *request);
  if (!answer.ok()) return complain(cli::kFailed, std::string(answer.status().message()));
  if (line.job && verb.filtered) {
    const auto status = select_job(sockets, verb, *line.job, *answer);
    if (!status.ok()) return complain(cli::kFailed, std::string(status.message()));
  }
  if (line.csv) return print(usage_csv(*answer));
  return print(line.json ? answer->dump() + "\n" : verb.show(*answer));
}

}  // namespace
}  // namespace plexrl::ctl

int main(int argc, char** argv) {
  return plexrl::cli::guarded_main("plexrl-ctl", plexrl::ctl::run, argc, argv);
}
