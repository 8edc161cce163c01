// plexrl-trace: what happened on a node's GPUs, from the traces that its manager wrote.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "nodemgr/settings/values.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/nearest.h"
#include "tools/cli/socket_path.h"
#include "tools/trace/follower.h"
#include "tools/trace/nodes.h"
#include "tools/trace/totals.h"
#include "tools/trace/verbs.h"

namespace plexrl::trace {
namespace {

constexpr char kFooter[] = R"(
TRACE: segment files (*.plxt), folders of a run, or a folder of runs; default: the newest run of this user's or the
system's manager. Several nodes' lie on one time line, by their wall clocks; their GPUs are numbered through. TIME: 5ms, 10s, 2h, counted from the beginning of the trace.

Examples:
  plexrl-trace summary
  plexrl-trace summary --follow                                 (anew each second in which something happened; end it with Ctrl-C)
  plexrl-trace timeline --from 10s --to 12s
  plexrl-trace why ppo@11.5s
  plexrl-trace diff /var/lib/plexrl/trace/n1-20261130T0900 /var/lib/plexrl/trace/n1-20261130T1100
  plexrl-trace report --output run.html                         (open it in any browser)
  plexrl-trace export --format perfetto --output run.pftrace    (open it in https://ui.perfetto.dev)

Exit status: 0 done, 1 failed, 2 wrong usage.
)";

struct CommandLine {
  std::vector<std::string> paths;
  std::string a, b;     ///< of diff
  bool follow = false;  ///< shown anew each time that something has been added
  std::string from, to;
  VerbOptions options;
};

int complain(int status, const std::string& what) {
  std::cerr << "plexrl-trace: " << what << "\n";
  return status;
}

// One that reads one trace.
CLI::App* add_verb(CLI::App& app, const char* name, const char* what, CommandLine& line) {
  CLI::App* verb = app.add_subcommand(name, what);
  verb->add_option("TRACE", line.paths, "segment files or folders (default: the newest run)");
  return verb;
}

void add_json_flag(CLI::App* verb, CommandLine& line) {
  verb->add_flag("--json", line.options.json, "one JSON object on stdout, nothing else");
}

void add_follow_flag(CLI::App* verb, CommandLine& line) {
  verb->add_flag("--follow", line.follow,
                 "of the run that is being written: shown anew whenever something has been added, "
                 "with --json one object a line");
}

void add_output_option(CLI::App* verb, CommandLine& line) {
  verb->add_option("-o,--output", line.options.output, "file to write (default: stdout)")
      ->type_name("FILE");
}

void declare(CLI::App& app, CommandLine& line) {
  app.set_version_flag("--version", "plexrl-trace " PLEXRL_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  CLI::App* summary = add_verb(app, "summary", "where each job's and each GPU's time went", line);
  add_json_flag(summary, line);
  add_follow_flag(summary, line);
  CLI::App* timeline = add_verb(app, "timeline", "who had which GPU when, drawn", line);
  timeline->add_option("--from", line.from, "the first moment shown (default: the beginning)")
      ->type_name("TIME");
  timeline->add_option("--to", line.to, "the last moment shown (default: the end)")
      ->type_name("TIME");
  timeline->add_option("--width", line.options.width, "columns (default: the terminal's, or 80)")
      ->type_name("N")
      ->check(CLI::Range(40, 10000));
  add_json_flag(timeline, line);
  add_follow_flag(timeline, line);
  CLI::App* swaps = add_verb(app, "swaps", "every change of a GPU's holder, with its stages", line);
  add_json_flag(swaps, line);
  add_follow_flag(swaps, line);
  CLI::App* gaps =
      add_verb(app, "gaps", "the longest gaps of the jobs, and how long they are", line);
  gaps->add_option("--top", line.options.top, "how many of the longest (default: 10)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  add_json_flag(gaps, line);
  add_follow_flag(gaps, line);
  CLI::App* why =
      app.add_subcommand("why", "what a job did at a moment, and which decision led there");
  why->add_option("JOB@TIME", line.options.job_at,
                  "the job's id, beginning of it or name, @, a TIME")
      ->required();
  why->add_option("TRACE", line.paths, "segment files or folders (default: the newest run)");
  add_json_flag(why, line);
  CLI::App* diff = app.add_subcommand("diff", "two runs beside each other: jobs by name, and GPUs");
  diff->add_option("A", line.a, "a run's folder, or one segment file")->required();
  diff->add_option("B", line.b, "likewise")->required();
  add_json_flag(diff, line);
  CLI::App* out = add_verb(app, "export", "the trace in another format", line);
  out->add_option("--format", line.options.format, "perfetto, json or csv")
      ->required()
      ->check(CLI::IsMember({"perfetto", "json", "csv"}));
  add_output_option(out, line);
  add_output_option(add_verb(app, "report", "one HTML page with all of it, for a browser", line),
                    line);
}

// The runs of the manager that this user would reach: their own, the system's, a simulated GPU's.
std::vector<std::string> trace_folders() {
  const auto env = cli::process_env();
  std::vector<std::string> folders;
  for (const std::string& state : cli::state_folders(env)) folders.push_back(state + "/trace");
  return folders;
}

std::optional<std::string> take_times(CommandLine& line) {
  for (auto [flag, text, target] : {std::tuple{"--from", &line.from, &line.options.from_ns},
                                    std::tuple{"--to", &line.to, &line.options.to_ns}}) {
    if (text->empty()) continue;
    const auto time = nodemgr::settings::parse_duration(*text);
    if (!time.ok()) return std::string(flag) + ": " + std::string(time.status().message());
    *target = time->count();
  }
  return std::nullopt;
}

std::string wrong_verb(int argc, char** argv, const CLI::App& app) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  if (argc < 2) return "no verb given; try plexrl-trace --help";
  if (argv[1][0] == '-') return "";
  if (std::find(verbs.begin(), verbs.end(), argv[1]) != verbs.end()) return "";
  return std::string("no verb '") + argv[1] + "'" + cli::did_you_mean(argv[1], verbs) +
         "; try plexrl-trace --help";
}

// Of a trace that is in memory.
int run_verb(const std::string& verb, const Model& model, const VerbOptions& options) {
  if (verb == "summary") return print_summary(model, summarize(model), options);
  if (verb == "timeline") return print_timeline(model, options);
  if (verb == "swaps") return print_swaps(model, options);
  if (verb == "gaps") return print_gaps(model, gap_report(model, options.top), options);
  if (verb == "why") return print_why(model, options);
  if (verb == "report") return write_report(model, options);
  return write_export(model, options);
}

// Whether the verb's result can be made while the trace is read, without keeping all of it.
bool is_made_in_passing(const std::string& verb) {
  return verb == "summary" || verb == "gaps" || verb == "timeline" || verb == "swaps";
}

// What such a verb shows, of a trace that comes record by record.
class Passing {
 public:
  // `most`: entries of a timeline, or swaps, that are shown; the newest.
  Passing(const std::string& verb, const VerbOptions& options, std::size_t most = SIZE_MAX)
      : verb_(verb),
        options_(options),
        totals_(options.top),
        recent_(most),
        is_summed_(verb == "summary" || verb == "gaps"),
        windows_(is_summed_ ? static_cast<WindowSink&>(totals_) : recent_) {}
  // A copy: what it would be if the trace ended here.
  Passing(const Passing& other)
      : verb_(other.verb_),
        options_(other.options_),
        totals_(other.totals_),
        recent_(other.recent_),
        is_summed_(other.is_summed_),
        windows_(other.windows_, is_summed_ ? static_cast<WindowSink&>(totals_) : recent_),
        count_(other.count_) {}
  Passing& operator=(const Passing&) = delete;

  void take(TraceRecord&& record) {
    ++count_;
    windows_.take(std::move(record));
  }
  std::size_t count() const { return count_; }

  // Nothing may be taken after it. What figures lack is said on stderr, unless it was.
  int show(bool* is_said) {
    Model ended = windows_.finish();
    if (!*is_said) *is_said = complain_of(ended);
    if (verb_ == "summary") return print_summary(ended, totals_.summary(ended), options_);
    if (verb_ == "gaps") return print_gaps(ended, totals_.gaps(), options_);
    const Model model = recent_.model(std::move(ended));
    return verb_ == "timeline" ? print_timeline(model, options_) : print_swaps(model, options_);
  }

 private:
  bool complain_of(const Model& ended) const {
    if (ended.unknown_records > 0) {
      complain(0, std::to_string(ended.unknown_records) +
                      " records are of kinds that this version does not know: ignoring them");
    }
    if (windows_.late_records() > 0) {
      complain(0, std::to_string(windows_.late_records()) +
                      " records tell of what was long before: figures of that time are not exact");
    }
    return ended.unknown_records > 0 || windows_.late_records() > 0;
  }

  const std::string& verb_;
  const VerbOptions& options_;
  Totals totals_;
  Recent recent_;
  bool is_summed_;
  Windows windows_;
  std::size_t count_ = 0;
};

int show_in_passing(const std::string& verb, const CommandLine& line) {
  Passing passing(verb, line.options);
  std::vector<std::string> warnings;
  const auto status = read_records(
      line.paths, [&](TraceRecord&& record) { passing.take(std::move(record)); }, warnings);
  if (!status.ok()) return complain(cli::kFailed, std::string(status.message()));
  for (const std::string& warning : warnings) complain(0, warning);
  if (passing.count() == 0 && !warnings.empty()) {
    return complain(cli::kFailed, "nothing there is a trace");
  }
  bool is_said = false;
  return passing.show(&is_said);
}

// What is wrong with the trace is said on stderr. None: nothing can be shown of it.
std::optional<Model> read_model(const std::vector<std::string>& paths) {
  auto nodes = read_nodes(paths);
  if (!nodes.ok()) {
    complain(cli::kFailed, std::string(nodes.status().message()));
    return std::nullopt;
  }
  bool is_empty = true, is_warned = false;
  for (const RawTrace& trace : *nodes) {
    for (const std::string& warning : trace.warnings) complain(0, warning);
    is_empty &= trace.records.empty();
    is_warned |= !trace.warnings.empty();
  }
  if (is_empty && is_warned) {
    complain(cli::kFailed, "nothing there is a trace");
    return std::nullopt;
  }
  auto model = merge_nodes(*std::move(nodes));
  if (!model.ok()) {
    complain(cli::kFailed, std::string(model.status().message()));
    return std::nullopt;
  }
  if (model->unknown_records > 0) {
    complain(0, std::to_string(model->unknown_records) +
                    " records are of kinds that this version does not know: ignoring them");
  }
  return *std::move(model);
}

int diff_runs(const CommandLine& line) {
  const auto a = read_model({line.a}), b = read_model({line.b});
  return a && b ? print_diff(*a, *b, line.options) : cli::kFailed;
}

// Until it is ended by a signal, or nobody reads what it says.
int follow_run(const std::string& verb, const CommandLine& line) {
  constexpr std::chrono::seconds kLookEvery(1);
  for (const std::string& path : line.paths) {
    if (std::filesystem::exists(path) && !std::filesystem::is_directory(path)) {
      return complain(cli::kUsage, path + " is no folder: --follow takes a run's, or one of runs");
    }
  }
  constexpr std::size_t kMostShown = 200'000;  // slices, gaps and swaps
  std::optional<Passing> passing;
  bool is_said = false;
  Follower follower(line.paths.empty() ? trace_folders() : line.paths,
                    {.begin = [&] { passing.emplace(verb, line.options, kMostShown); },
                     .take = [&](TraceRecord&& record) { passing->take(std::move(record)); },
                     .warn = [](const std::string& warning) { complain(0, warning); }});
  for (bool is_waiting = false;; std::this_thread::sleep_for(kLookEvery)) {
    const auto has_new = follower.look();
    if (!has_new.ok() && !is_waiting) {
      is_waiting = true;
      complain(0, "there is no run yet, waiting for one");
    }
    if (!has_new.ok() || !*has_new) continue;
    if (!line.options.json && isatty(STDOUT_FILENO)) std::cout << "\033[H\033[2J";
    const int status = Passing(*passing).show(&is_said);
    if (!line.options.json && !isatty(STDOUT_FILENO)) std::cout << "\n";
    if (status != cli::kDone || !std::cout.flush()) return cli::kFailed;
  }
}

int show_run(const std::string& verb, CommandLine& line) {
  if (line.follow) return follow_run(verb, line);
  if (line.paths.empty()) {
    const auto run = newest_run(trace_folders());
    if (!run.ok()) {
      std::string places;
      for (const auto& folder : trace_folders()) places += " " + folder;
      return complain(cli::kFailed, "no trace found in" + places + "; name one");
    }
    line.paths = {*run};
  }
  // Several paths may be of several nodes, whose clocks have to be known first.
  if (line.paths.size() == 1 && is_made_in_passing(verb)) return show_in_passing(verb, line);
  const auto model = read_model(line.paths);
  return model ? run_verb(verb, *model, line.options) : cli::kFailed;
}

int run(int argc, char** argv) {
  CLI::App app("Shows what happened on a node's GPUs, from the traces of its manager.",
               "plexrl-trace");
  CommandLine line;
  declare(app, line);
  if (const auto wrong = wrong_verb(argc, argv, app); !wrong.empty()) {
    return complain(cli::kUsage, wrong);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(cli::kUsage, error.what());
  }
  if (const auto wrong = take_times(line)) return complain(cli::kUsage, *wrong);
  const std::string verb = app.get_subcommands().front()->get_name();
  const int status = verb == "diff" ? diff_runs(line) : show_run(verb, line);
  if (!std::cout.flush()) return complain(cli::kFailed, "stdout: can't be written");
  return status;
}

}  // namespace
}  // namespace plexrl::trace

int main(int argc, char** argv) {
  return plexrl::cli::guarded_main("plexrl-trace", plexrl::trace::run, argc, argv);
}
