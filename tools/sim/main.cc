// plexrl-sim: what sharing would give, by simulation over the policy and placement that run.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "nodemgr/settings/cat.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/nearest.h"
#include "tools/sim/html.h"
#include "tools/sim/reproduce.h"
#include "tools/sim/run_file.h"

namespace plexrl::sim {
namespace {

using nodemgr::cat;

constexpr char kFooter[] = R"(
All figures are simulated. Progress goes to stderr. FILE and its keys: docs/simulator.md. DIR holds recorded data of others
(muri-trace2.csv, llm-d-replay.json).

Examples:
  plexrl-sim run cluster.json --html report.html
  plexrl-sim reproduce plexrl-paper --seeds 20 --json

Exit status: 0 done (also when a goal is missed: the rows say so), 1 failed, 2 wrong usage or a bad file.
)";

struct CommandLine {
  std::string file;
  std::string name;
  std::string csv;
  std::string html;
  bool json = false;
  std::optional<std::uint64_t> seed;
  ReproduceOptions reproduce;
};

int complain(int status, const std::string& what) {
  std::cerr << "plexrl-sim: " << what << "\n";
  return status;
}

/// One line on stderr, rewritten on a terminal, at most ten times a second.
class Progress {
 public:
  ~Progress() {
    if (shown_) std::cerr << "\r\033[K";
  }
  void operator()(const std::string& what) {
    auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    shown_ = true;
    std::cerr << "\r\033[K" << what << std::flush;
  }

 private:
  bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good();
}

int give_out(const CommandLine& line, const Report& report, const std::vector<SchedulerRun>& runs) {
  if (!line.csv.empty() && !write_file(line.csv, to_csv(report))) {
    return complain(cli::kFailed, "can't write '" + line.csv + "'");
  }
  if (!line.html.empty() && !write_file(line.html, to_html(report, runs))) {
    return complain(cli::kFailed, "can't write '" + line.html + "'");
  }
  if (line.json) {
    nlohmann::json json = to_json(report);
    if (!runs.empty()) json["runs"] = details_of(runs);
    std::cout << json.dump() << "\n";
  } else {
    std::cout << to_text(report);
  }
  std::cout.flush();
  return std::cout.good() ? cli::kDone : complain(cli::kFailed, "can't write to stdout");
}

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run_file(const CommandLine& line) {
  auto workload = read_workload(line.file);
  if (!workload.ok()) return complain(cli::kUsage, nodemgr::message_of(workload.status()));
  if (line.seed) workload->setup.seed = *line.seed;
  auto begin = std::chrono::steady_clock::now();
  std::vector<SchedulerRun> runs;
  {
    Progress progress;
    runs = run_workload(*workload, std::ref(progress));
  }
  Report report = report_of(*workload, runs);
  report.wall_s = since(begin);
  report.command = cat("plexrl-sim run ", line.file);
  return give_out(line, report, runs);
}

int reproduce(CommandLine& line) {
  std::vector<std::string> names;
  for (const Reproduction& one : reproductions()) {
    names.emplace_back(one.name);
    if (line.name != one.name) continue;
    auto begin = std::chrono::steady_clock::now();
    absl::StatusOr<Report> report = [&] {
      Progress progress;
      line.reproduce.progress = std::ref(progress);
      return one.run(line.reproduce);
    }();
    if (!report.ok()) return complain(cli::kFailed, nodemgr::message_of(report.status()));
    report->name = one.name;
    report->wall_s = since(begin);
    report->first_seed = line.reproduce.first_seed;
    report->command = cat("plexrl-sim reproduce ", one.name, " --seeds ", line.reproduce.seeds);
    return give_out(line, *report, {});
  }
  return complain(cli::kUsage, "nothing to reproduce is called '" + line.name + "'" +
                                   cli::did_you_mean(line.name, names));
}

void declare(CLI::App& app, CommandLine& line) {
  app.set_version_flag("--version", "plexrl-sim " PLEXRL_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  auto outputs = [&](CLI::App* verb) {
    verb->add_flag("--json", line.json, "one JSON object on stdout, nothing else");
    verb->add_option("--csv", line.csv, "also write the rows to FILE")->type_name("FILE");
    verb->add_option("--html", line.html, "also write a report with charts that opens offline")
        ->type_name("FILE");
  };
  CLI::App* run = app.add_subcommand("run", "simulate the workload in FILE");
  run->add_option("FILE", line.file, "JSON")->required();
  run->add_option("--seed", line.seed, "instead of the file's");
  outputs(run);
  std::string help = "print the figures behind a claim, each with goal, bound and assumptions:";
  for (const Reproduction& one : reproductions()) help += cat("\n  ", one.name, ": ", one.help);
  CLI::App* again = app.add_subcommand("reproduce", help);
  again->add_option("NAME", line.name, "one of those")->required();
  again->add_option("--data", line.reproduce.data, "folder with recorded data of others")
      ->type_name("DIR");
  again->add_option("--seeds", line.reproduce.seeds, "how many (default: 20)")
      ->type_name("N")
      ->check(CLI::Range(1, 10000));
  again->add_option("--first-seed", line.reproduce.first_seed, "the first of them (default: 1)")
      ->type_name("N");
  outputs(again);
}

std::string wrong_verb(int argc, char** argv) {
  if (argc < 2) return "no verb given; try plexrl-sim --help";
  const std::string word = argv[1];
  if (word.starts_with('-') || word == "run" || word == "reproduce") return "";
  return "no verb '" + word + "'" + cli::did_you_mean(word, {"run", "reproduce"}) +
         "; try plexrl-sim --help";
}

int start(int argc, char** argv) {
  CLI::App app("Simulates jobs that share GPUs, over the policy and placement that run.",
               "plexrl-sim");
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
  return app.got_subcommand("run") ? run_file(line) : reproduce(line);
}

}  // namespace
}  // namespace plexrl::sim

int main(int argc, char** argv) {
  return plexrl::cli::guarded_main("plexrl-sim", plexrl::sim::start, argc, argv);
}
