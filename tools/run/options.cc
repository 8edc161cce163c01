#include "tools/run/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "nodemgr/settings/utf8.h"
#include "nodemgr/settings/values.h"
#include "shim/wire.h"
#include "tools/cli/nearest.h"
#include "tools/run/exit_status.h"

namespace plexrl::run {
namespace {

constexpr char kFooter[] = R"(
Everything after the options is the command; "--" may stand before it.
The job's own exit status is returned, 128+n when signal n killed it. plexrl-run's own: 125 it failed, 126 the command
can't be executed, 127 the command was not found. SIZE: 512MiB, 8GiB (at least 2MiB). TIME: 5ms, 10s, 2h.

Example:
  plexrl-run --name ppo --memory 40GiB -- python train.py --steps 1000

Environment: PLEXRL_SOCKET (the node manager's socket), PLEXRL_SIMGPU, PLEXRL_TEAM, PLEXRL_PRIORITY, PLEXRL_MEMORY,
PLEXRL_EXPORT, PLEXRL_EVICT, PLEXRL_SLURM, PLEXRL_DISABLE=1 (run the command without sharing), PLEXRL_LOG (what the job's shim says on stderr).
)";

/// Options as text, before they are checked.
struct RawOptions {
  std::string priority, memory, max_slowdown, max_wait, simgpu;
  std::string evict = "page", export_kind = "job";
};

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool read_priority(const std::string& text, int* priority) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  if (number < 0 || number > 100) return false;
  *priority = number;
  return true;
}

Stop usage(const std::string& error) { return {kPlexrlFailed, "", error}; }

/// What is wrong with the options about a cluster together with the others, if anything.
std::optional<std::string> check_cluster(const CLI::App& app, const Options& options) {
  if (options.cluster.empty()) {
    for (const char* name :
         {"--gpus", "--nodes", "--apart-from", "--slurm", "--slurm-options", "--placement"}) {
      if (app.count(name) == 0) continue;
      return std::string(name) +
             ": is for jobs that a cluster manager places: give --cluster HOST:PORT too" +
             (name == std::string("--gpus") ? ", or set CUDA_VISIBLE_DEVICES instead" : "");
    }
    return std::nullopt;
  }
  if (options.join) return "--join and --cluster: the job around it has its place already";
  if (options.gpus < 1 || options.gpus > wire::kMaxGpus) {
    return "--gpus " + std::to_string(options.gpus) + ": give a number from 1 to " +
           std::to_string(wire::kMaxGpus);
  }
  if (options.nodes != 1) {
    return "--nodes " + std::to_string(options.nodes) +
           ": jobs over several nodes can't be placed yet: give 1";
  }
  return std::nullopt;
}

void declare(CLI::App& app, Options& options, RawOptions& raw) {
  app.set_version_flag("--version", "plexrl-run " PLEXRL_VERSION);
  // Of a shell's variable that is not set, say: not the default.
  const CLI::Validator not_empty(
      [](const std::string& value) { return value.empty() ? std::string("is empty") : ""; }, "");
  app.add_option("--name", options.name, "the job's name (default: the command's base name)")
      ->check(not_empty)
      ->type_name("NAME");
  app.add_option("--team", options.team,
                 "the job's team; GPU time is shared by the weights of teams ([[team]] in the "
                 "manager's nodemgr.toml; 1 where it has none), then equally between their jobs")
      ->type_name("TEAM");
  app.add_option("--priority", raw.priority, "0 (last) to 100 (first) (default: 50)")
      ->type_name("N");
  app.add_option("--memory", raw.memory,
                 "device memory promised to the job on each GPU (default: what is usable)")
      ->check(not_empty)
      ->type_name("SIZE");
  app.add_option("--max-wait", raw.max_wait,
                 "longest wait for a GPU in one stretch (default: the manager's, 120s)")
      ->type_name("TIME");
  app.add_option("--max-slowdown", raw.max_slowdown,
                 "how much slower than alone the job may become, for example 1.05 (default: no "
                 "limit)")
      ->type_name("RATIO");
  app.add_flag("--no-wait", options.no_wait,
               "fail instead of waiting when the memory can't be promised now (with --cluster: or "
               "there is no place)");
  app.add_option("--evict", raw.evict,
                 "how the job leaves HBM: page (default), all but its contexts; checkpoint, these "
                 "too when it has been idle for long and others need the room")
      ->check(CLI::IsMember({"page", "checkpoint"}))
      ->type_name("HOW");
  app.add_option("--export", raw.export_kind,
                 "who can open memory that the job exports: job, its own processes (default); "
                 "real, any process, and the memory stays on the GPU")
      ->check(CLI::IsMember({"job", "real"}))
      ->type_name("KIND");
  app.add_flag("--simgpu", raw.simgpu,
               "use the simulated GPU; --simgpu=SPEC as in PLEXRL_SIMGPU, for example "
               "--simgpu=name=a,gpus=2,memory=1GiB");
  app.add_flag("--require", options.require, "fail (125) instead of running unshared");
  app.add_flag("--join", options.join, "inside a job: be part of it instead of a job of its own");
  app.add_option(
         "--cluster", options.cluster,
         "the cluster manager that chooses node and GPUs; the job is started there by Slurm "
         "where there is one, else it runs if they are of this machine")
      ->type_name("HOST:PORT");
  app.add_option("--gpus", options.gpus, "with --cluster: how many GPUs it gets (default: 1)")
      ->type_name("N");
  app.add_option("--nodes", options.nodes, "with --cluster: over how many nodes (only 1 yet)")
      ->type_name("M");
  app.add_option("--apart-from", options.apart_from,
                 "with --cluster: a job of yours that it must not share GPUs with; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME");
  app.add_option(
         "--slurm", options.slurm,
         "with --cluster: start the job by srun; by sbatch, and don't wait for its end; no; "
         "auto, by srun where this machine has a Slurm, but not inside a Slurm job "
         "(default: auto)")
      ->check(CLI::IsMember({"auto", "srun", "sbatch", "no"}))
      ->type_name("HOW");
  app.add_option("--slurm-options", options.slurm_options,
                 "with --cluster: more options for srun or sbatch, for example "
                 "\"--time=4:00:00 --cpus-per-task=8\"")
      ->type_name("WORDS");
  app.add_option("--placement", options.placement)->group("");  // of the plexrl-run on the node
  app.add_flag("--slurm-step", options.slurm_step)->group("");  // of the SPANK plugin
}

// CLI11 doesn't know that a command follows the options.
std::string help_of(const CLI::App& app) {
  const std::string known = "[OPTIONS]";
  std::string help = app.help();
  if (const auto at = help.find(known); at != std::string::npos) {
    help.replace(at, known.size(), known + " -- COMMAND [ARGUMENTS]");
  }
  return help;
}

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) names.push_back(option->get_name());
  return names;
}

// Takes the values that are not plain text or numbers. Returns the complaint, if any.
std::optional<std::string> convert(const RawOptions& raw, Options& options) {
  if (!raw.memory.empty()) {
    const auto bytes = nodemgr::settings::parse_device_bytes(raw.memory);
    if (!bytes.ok()) return "--memory: " + std::string(bytes.status().message());
    options.memory_bytes = *bytes;
  }
  if (!raw.max_slowdown.empty()) {
    const auto ratio = nodemgr::settings::parse_number(raw.max_slowdown);
    if (!ratio.ok() || *ratio <= 1) {
      return "--max-slowdown " + raw.max_slowdown + ": give a ratio above 1, for example 1.05";
    }
    options.max_slowdown = *ratio;
  }
  if (!raw.max_wait.empty()) {
    const auto time = nodemgr::settings::parse_duration(raw.max_wait);
    if (!time.ok()) return "--max-wait: " + std::string(time.status().message());
    if (time->count() <= 0) return "--max-wait " + raw.max_wait + ": give a time above zero";
    options.max_wait_ns = static_cast<std::uint64_t>(time->count());
  }
  if (!raw.priority.empty() && !read_priority(raw.priority, &options.priority)) {
    return "--priority " + raw.priority + ": give a number from 0 to 100";
  }
  if (raw.export_kind != "job" && raw.export_kind != "real") {  // the environment's
    return "PLEXRL_EXPORT=" + raw.export_kind + ": give job or real";
  }
  options.exports_are_real = raw.export_kind == "real";
  if (raw.evict != "page" && raw.evict != "checkpoint") {
    return "PLEXRL_EVICT=" + raw.evict + ": give page or checkpoint";
  }
  options.may_be_checkpointed = raw.evict == "checkpoint";
  if (const auto& how = options.slurm;
      how != "auto" && how != "srun" && how != "sbatch" && how != "no") {
    return "PLEXRL_SLURM=" + how + ": give auto, srun, sbatch or no";
  }
  if (options.name.empty()) {  // a command may be called whatever its user likes
    const std::string command = base_name(options.command.front());
    options.name = nodemgr::as_line(command, sizeof(wire::JobSubmit::name) - 1);
  }
  if (options.name.size() >= sizeof(wire::JobSubmit::name)) {
    return "--name: '" + options.name + "' is longer than 63 bytes";
  }
  for (const std::string& text : {options.name, options.team}) {
    // They are shown in tables, logs and traces, a line each.
    if (std::any_of(text.begin(), text.end(),
                    [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
      return "--name and --team: control characters are not possible";
    }
    if (nodemgr::as_utf8(text) != text) return "--name and --team: give them in UTF-8";
  }
  if (options.team.size() >= sizeof(wire::JobSubmit::team)) {
    return "--team: '" + options.team + "' is longer than 63 bytes";
  }
  return std::nullopt;
}

std::optional<std::string> take_environment(const cli::Env& env, Options& options,
                                            RawOptions& raw) {
  auto value_of = [&](const char* name) {
    const char* value = env(name);
    return std::string(value ? value : "");
  };
  options.team = value_of("PLEXRL_TEAM");
  if (const std::string priority = value_of("PLEXRL_PRIORITY"); !priority.empty()) {
    if (!read_priority(priority, &options.priority)) {
      return "PLEXRL_PRIORITY=" + priority + ": give a number from 0 to 100";
    }
  }
  const bool inside_a_job = !value_of("PLEXRL_JOB_ID").empty();
  if (!inside_a_job) {
    if (const std::string memory = value_of("PLEXRL_MEMORY"); !memory.empty()) {
      const auto bytes = nodemgr::settings::parse_device_bytes(memory);
      if (!bytes.ok()) return "PLEXRL_MEMORY: " + std::string(bytes.status().message());
      options.memory_bytes = *bytes;
    }
    if (const std::string kind = value_of("PLEXRL_EXPORT"); !kind.empty()) raw.export_kind = kind;
    if (const std::string how = value_of("PLEXRL_EVICT"); !how.empty()) raw.evict = how;
  }
  if (const std::string how = value_of("PLEXRL_SLURM"); !how.empty()) options.slurm = how;
  if (const char* spec = env("PLEXRL_SIMGPU")) options.simgpu = spec;
  return std::nullopt;
}

}  // namespace

std::variant<Options, Stop> parse_options(int argc, const char* const* argv, const cli::Env& env) {
  Options options;
  RawOptions raw;
  if (const auto complaint = take_environment(env, options, raw)) return usage(*complaint);

  CLI::App app("Runs a command so that it shares the node's GPUs with other jobs.", "plexrl-run");
  app.footer(kFooter);
  app.prefix_command();
  declare(app, options, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Stop{0, help_of(app), ""};
  } catch (const CLI::CallForVersion&) {
    return Stop{0, "plexrl-run " PLEXRL_VERSION "\n", ""};
  } catch (const CLI::ParseError& error) {
    return usage(error.what());
  }

  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with('-')) {
    const std::string option = options.command.front().substr(0, options.command.front().find('='));
    return usage("unknown option " + option + cli::did_you_mean(option, long_options(app)));
  }
  if (options.command.empty()) return usage("no command given; try plexrl-run --help");
  if (const auto wrong = check_cluster(app, options)) return usage(*wrong);
  if (app.count("--simgpu") > 0) options.simgpu = raw.simgpu == "true" ? "" : raw.simgpu;
  if (const auto complaint = convert(raw, options)) return usage(*complaint);
  return options;
}

}  // namespace plexrl::run
