// plexrl-top: a node's GPUs and jobs, live, in the terminal.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <clocale>
#include <iostream>

#include "nodemgr/settings/values.h"
#include "tools/cli/exit_status.h"
#include "tools/ctl/which_gpu.h"
#include "tools/top/keys.h"
#include "tools/top/screen.h"

namespace plexrl::top {
namespace {

using Clock = std::chrono::steady_clock;

// Keys are not seen while the manager is silent.
constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::seconds kOncePatience{60};

constexpr char kFooter[] = R"(
Without --simgpu and PLEXRL_SOCKET the first manager that answers is asked: the system's, this user's, this user's simulated
ones. Keys are shown at the bottom; '?' tells more. Colours: TERM and NO_COLOR decide.

Examples:
  plexrl-top
  plexrl-top --once
  plexrl-top --once --json | jq '.gpus[].duty_ratio'

Exit status: 0 done, 1 failed (no manager answers, say), 2 wrong usage.
)";

struct CommandLine {
  bool once = false, json = false;
  std::string simgpu, interval = "1s", sort = "arrival", filter;
};

int complain(int status, const std::string& what) {
  std::cerr << "plexrl-top: " << what << "\n";
  return status;
}

void declare(CLI::App& app, CommandLine& line) {
  app.set_version_flag("--version", "plexrl-top " PLEXRL_VERSION);
  app.footer(kFooter);
  app.add_flag("--once", line.once, "print what is now, once, and end");
  app.add_flag("--json", line.json, "with --once: one JSON object on stdout, nothing else");
  app.add_option("--interval", line.interval, "between two looks (default: 1s)")->type_name("TIME");
  app.add_option("--sort", line.sort, "jobs by this (default: arrival)")
      ->check(CLI::IsMember(order_names()));
  app.add_option("--filter", line.filter, "only jobs with this in id, name, user, team or state")
      ->type_name("TEXT");
  app.add_flag("--simgpu", line.simgpu,
               "ask the manager of a simulated GPU; --simgpu=name=N for one of several");
}

// What the manager says now.
struct Answers {
  Json status = Json::object(), memory = Json::object();
};

absl::Status look(const std::vector<std::string>& sockets, Answers& answers,
                  std::chrono::seconds patience) {
  auto status = ctl::ask(sockets, {{"verb", "status"}}, patience);
  if (!status.ok()) return status.status();
  auto memory = ctl::ask(sockets, {{"verb", "memory"}}, patience);
  if (!memory.ok()) return memory.status();
  answers = {*std::move(status), *std::move(memory)};
  return absl::OkStatus();
}

int show_once(const std::vector<std::string>& sockets, const View& view, bool json) {
  Answers answers;
  const auto looked = look(sockets, answers, kOncePatience);
  if (!looked.ok()) return complain(cli::kFailed, std::string(looked.message()));
  if (json) {
    Json all = std::move(answers.status);
    all["jobs"] = jobs_shown(all, view);
    all["memory"] = answers.memory["memory"];
    std::cout << all.dump() << "\n";
  } else {
    std::cout << draw_once(answers.status, answers.memory, view);
  }
  return std::cout.flush() ? cli::kDone : complain(cli::kFailed, "stdout: can't be written");
}

void carry_out(const Wish& wish, const std::vector<std::string>& sockets, View& view) {
  const auto answer = ctl::ask(sockets, *wish.request, kPatience);
  view.message = answer.ok() ? wish.done : std::string(answer.status().message());
}

int show_live(const std::vector<std::string>& sockets, View view, Clock::duration interval) {
  Answers answers;
  const auto first = look(sockets, answers, kPatience);
  if (!first.ok()) return complain(cli::kFailed, std::string(first.message()));
  Screen screen;
  if (!screen.is_ready()) {
    const char* term = getenv("TERM");  // NOLINT(concurrency-mt-unsafe): the only thread
    return complain(cli::kFailed, std::string("this terminal (TERM=") + (term ? term : "") +
                                      ") is not known here: set TERM, or use --once");
  }
  Keys keys;
  auto next = Clock::now() + interval;
  bool is_lost = false;
  while (true) {
    screen.show(draw(answers.status, answers.memory, view, screen.size()));
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    const auto key = screen.wait_key(std::max(rest, std::chrono::milliseconds(0)));
    bool is_told = false;  // something was changed: what came of it is shown at once
    if (key) {
      const Wish wish = keys.press(*key, answers.status, view);
      if (wish.quits) return cli::kDone;
      is_told = wish.request.has_value();
      if (is_told) carry_out(wish, sockets, view);
    }
    if (Clock::now() < next && !is_told) continue;
    const auto looked = look(sockets, answers, kPatience);
    if (!looked.ok()) {
      view.message = "asking again: " + std::string(looked.message());
    } else if (is_lost) {
      view.message.clear();
    }
    is_lost = !looked.ok();
    next = Clock::now() + interval;
  }
}

int run(int argc, char** argv) {
  std::setlocale(LC_ALL, "");  // NOLINT(concurrency-mt-unsafe): the only thread
  CLI::App app("Shows a node's GPUs and jobs, live.", "plexrl-top");
  CommandLine line;
  declare(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(cli::kUsage, error.what());
  }
  if (line.json && !line.once) return complain(cli::kUsage, "--json needs --once");
  const auto interval = nodemgr::settings::parse_duration(line.interval);
  if (!interval.ok())
    return complain(cli::kUsage, "--interval: " + std::string(interval.status().message()));
  if (*interval < std::chrono::milliseconds(100)) {
    return complain(cli::kUsage, "--interval: '" + line.interval + "' is below 100ms");
  }
  const auto env = cli::process_env();
  const auto simgpu = ctl::simulated_gpu(env, line.simgpu);
  if (!simgpu.ok()) return complain(cli::kUsage, std::string(simgpu.status().message()));
  const auto sockets = ctl::admin_sockets(env, *simgpu);
  const View view{.order = order_named(line.sort), .filter = line.filter};
  if (line.once) return show_once(sockets, view, line.json);
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return complain(cli::kUsage, "this is no terminal: use --once, with --json for machines");
  }
  return show_live(sockets, view, *interval);
}

}  // namespace
}  // namespace plexrl::top

int main(int argc, char** argv) {
  return plexrl::cli::guarded_main("plexrl-top", plexrl::top::run, argc, argv);
}
