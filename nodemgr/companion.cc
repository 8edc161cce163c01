#include "nodemgr/companion.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "nodemgr/clock.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

extern char** environ;

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

constexpr auto kForEver = 24h * 365 * 10;
constexpr std::chrono::nanoseconds kFirstWait = 1s;
constexpr std::chrono::nanoseconds kLongestWait = 1min;
/// docs/contract.md, row "network".
constexpr char kMetricsListen[] = "127.0.0.1:7462";

/// plexrl-cluster-client with these words and what it needs to reach the cluster manager; empty
/// when none is named.
std::vector<std::string> cluster_command(const settings::Values& values, const std::string& node,
                                         const std::vector<std::string>& words) {
  if (!values.is_set("cluster.manager")) return {};
  std::vector<std::string> arguments = {beside_this_program("plexrl-cluster-client")};
  arguments.insert(arguments.end(), words.begin(), words.end());
  arguments.insert(arguments.end(), {"--cluster", values.text("cluster.manager"), "--tls",
                                     values.text("cluster.tls"), "--node", node});
  if (values.is_on("cluster.insecure_loopback")) arguments.emplace_back("--insecure-loopback");
  return arguments;
}

}  // namespace

Companion::Companion(EventLoop& loop, int timers, std::vector<std::string> arguments,
                     std::string missing)
    : loop_(loop),
      start_timer_(timers),
      arguments_(std::move(arguments)),
      missing_(std::move(missing)),
      wait_(kFirstWait) {
  process_.emplace(loop, timers + 1);
  if (!arguments_.empty()) start();
}

void Companion::stop() {
  process_.reset();
  loop_.cancel_timer(start_timer_);
}

void Companion::start() {
  started_ = boot_now();
  if (process_->start(arguments_, kForEver, [this](const auto& end) { ended(end); })) return;
  ended({.text = cat(arguments_.front(), ": ", std::strerror(errno))});
}

void Companion::ended(const HelperProcess::End& end) {
  if (boot_now() - started_ > kLongestWait) wait_ = kFirstWait;
  if (end.text != last_words_) {
    log_line(LogLevel::kWarning, "companion",
             cat(missing_, ": ", end.text, "; going on without, trying again"));
  }
  last_words_ = end.text;
  loop_.set_timer(start_timer_, boot_now() + wait_, [this] { start(); });
  wait_ = std::min(2 * wait_, kLongestWait);
}

std::vector<std::string> cluster_agent(const settings::Values& values, const std::string& node,
                                       const std::string& admin_socket) {
  return cluster_command(
      values, node, {"agent", "--admin-socket", admin_socket, "--manager-pid", cat(::getpid())});
}

std::vector<std::string> cluster_farewell(const settings::Values& values, const std::string& node) {
  return cluster_command(values, node, {"left"});
}

void leave_behind(std::vector<std::string> arguments) {
  if (arguments.empty()) return;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  // A service manager asks everybody to end once we have.
  sigset_t kept_off;
  sigemptyset(&kept_off);
  sigaddset(&kept_off, SIGTERM);
  ::posix_spawnattr_setsigmask(&attributes, &kept_off);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  // Where it can't be started the others find out by our silence.
  ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
}

std::vector<std::string> metrics_exporter(const settings::Values& values,
                                          const std::string& admin_socket) {
  const std::string& told = values.text("metrics.listen");
  const std::string listen = !told.empty()                    ? told
                             : values.is_on("exit_when_idle") ? "off"
                                                              : kMetricsListen;
  if (listen == "off") return {};
  return {beside_this_program("plexrl-exporter"),
          "--listen",
          listen,
          "--admin-socket",
          admin_socket,
          "--manager-pid",
          cat(::getpid())};
}

}  // namespace plexrl::nodemgr
