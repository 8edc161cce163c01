// plexrl-nodemgr: shares this node's GPUs between jobs.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "nodemgr/clock.h"
#include "nodemgr/companion.h"
#include "nodemgr/daemon_settings.h"
#include "nodemgr/daemon_start.h"
#include "nodemgr/gpu_probe.h"
#include "nodemgr/log.h"
#include "nodemgr/manager.h"
#include "nodemgr/service_manager.h"
#include "nodemgr/settings/cat.h"

extern char** environ;

namespace plexrl::nodemgr {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

/// Two of the loop each; those of node.h are small numbers.
constexpr int kAgentTimers = 100;
constexpr int kExporterTimers = 102;

int say_usage(const absl::Status& status) {
  std::fprintf(stderr, "plexrl-nodemgr: %s\n", message_of(status).c_str());
  return kUsage;
}

void print_help() {
  std::printf(
      "plexrl-nodemgr: shares this node's GPUs between jobs that plexrl-run starts\n\n"
      "usage: plexrl-nodemgr [options]\n"
      "example: plexrl-nodemgr --host-budget 64GiB --trace-max-age 7d\n\n"
      "Each option is also an environment variable (PLEXRL_HOST_BUDGET) and, where it has a\n"
      "section, a key in nodemgr.toml ([host] budget). Option > environment > file > default.\n\n"
      "%s  --help, --version\n",
      settings::describe_flags(daemon_table()).c_str());
}

/// What is not in the table of settings: teams; and what was set and changes nothing, which is said
/// in the log and in `plexrl-ctl status`.
void apply_rest(LoadedSettings& loaded, Manager& manager) {
  manager.set_teams(std::move(loaded.teams));
  for (const std::string& line : loaded.without_effect) {
    log_line(LogLevel::kWarning, "main", line);
  }
  manager.set_without_effect(loaded.without_effect);
}

/// A bad file changes nothing.
absl::Status reload(Manager& manager, int argc, char** argv) {
  absl::StatusOr<LoadedSettings> loaded = load_settings(argc, argv, environ);
  if (!loaded.ok()) {
    log_line(LogLevel::kWarning, "main",
             cat("settings not reloaded: ", message_of(loaded.status()), ", going on as before"));
    return loaded.status();
  }
  set_log_level(loaded->values.text("log"));
  apply_rest(*loaded, manager);
  manager.reload(loaded->values);
  log_line(LogLevel::kInfo, "main", cat("settings reloaded file='", loaded->file, "'"));
  return absl::OkStatus();
}

/// To systemd, for as long as it waits for it.
void stay_alive(EventLoop& loop) {
  const std::chrono::nanoseconds interval = alive_interval();
  if (interval.count() == 0) return;
  tell_alive();
  loop.set_timer(kWatchdogTimer, boot_now() + interval, [&loop] { stay_alive(loop); });
}

int serve(Manager& manager, const sigset_t& signals, int argc, char** argv) {
  ScopedFd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  bool stop = false;
  manager.loop().watch(signal_fd.get(), EPOLLIN, [&](std::uint32_t) {
    signalfd_siginfo info{};
    while (::read(signal_fd.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGHUP) {
        if (!reload(manager, argc, argv).ok()) continue;  // said, and nothing has changed
      } else {
        stop = true;
      }
    }
  });
  manager.set_on_reload([&] { return reload(manager, argc, argv); });
  stay_alive(manager.loop());
  while (!stop && !manager.wants_to_end()) manager.run_once(std::chrono::nanoseconds(-1));
  tell_stopping();
  log_line(LogLevel::kInfo, "main", stop ? "stopping" : "stopping, the last job has gone");
  return kDone;
}

int run(int argc, char** argv) {
  absl::StatusOr<LoadedSettings> loaded = load_settings(argc, argv, environ);
  if (!loaded.ok()) return say_usage(loaded.status());
  if (loaded->line.help) return print_help(), kDone;
  if (loaded->line.version) return std::printf("plexrl-nodemgr %s\n", PLEXRL_VERSION), kDone;
  if (!loaded->line.arguments.empty()) {
    return say_usage(invalid("unexpected argument '", loaded->line.arguments.front(), "'"));
  }
  if (loaded->values.is_on("check_config")) {
    std::printf("settings are good%s%s\n", loaded->file.empty() ? "" : ", file ",
                loaded->file.c_str());
    for (const std::string& line : loaded->without_effect) {
      std::fprintf(stderr, "plexrl-nodemgr: warning: %s\n", line.c_str());
    }
    return kDone;
  }
  set_log_level(loaded->values.text("log"));

  // Before any thread begins, so that all of them leave signals to the loop.
  const sigset_t signals = take_signals();
  ::signal(SIGCHLD, SIG_DFL);  // where it is ignored, nobody learns how a helper ended
  raise_descriptor_limit();

  absl::StatusOr<PassedSockets> sockets = take_passed_sockets();
  if (!sockets.ok()) return say_usage(sockets.status());
  absl::StatusOr<std::unique_ptr<GpuProbe>> probe = open_nvml();
  absl::StatusOr<std::unique_ptr<Manager>> manager =
      probe.ok() ? Manager::start(loaded->values, *std::move(probe), *std::move(sockets))
                 : probe.status();
  if (!manager.ok()) {
    log_line(LogLevel::kError, "main", message_of(manager.status()));
    return kFailed;
  }
  apply_rest(*loaded, **manager);
  const Node& node = (*manager)->node();
  log_line(LogLevel::kInfo, "main",
           cat("ready socket='", (*manager)->socket_path(), "' gpus=", node.gpus.size(),
               node.simulated ? " (simulated)" : "", " generation=", node.generation));
  const std::string& admin = (*manager)->admin_path();
  Companion agent((*manager)->loop(), kAgentTimers,
                  cluster_agent(loaded->values, node.options.node, admin),
                  "nobody tells the cluster manager of this node");
  const Companion exporter((*manager)->loop(), kExporterTimers,
                           metrics_exporter(loaded->values, admin), "nobody serves metrics");
  say_ready(loaded->values.text("ready_fd"), "ready");
  tell_ready(cat(node.gpus.size(), node.gpus.size() == 1 ? " GPU" : " GPUs",
                 node.simulated ? " (simulated), " : ", ", (*manager)->socket_path()));
  const int status = serve(**manager, signals, argc, argv);
  if (node.jobs.empty()) {
    agent.stop();  // what it would still say is not so any more
    leave_behind(cluster_farewell(loaded->values, node.options.node));
  }
  return status;
}

}  // namespace
}  // namespace plexrl::nodemgr

int main(int argc, char** argv) { return plexrl::nodemgr::run(argc, argv); }
