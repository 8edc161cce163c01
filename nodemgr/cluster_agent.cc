#include "nodemgr/cluster_agent.h"

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

/// Timers of the loop; those of node.h are small numbers.
constexpr int kPatienceTimer = 100;
constexpr int kStartTimer = 101;

constexpr auto kForEver = 24h * 365 * 10;
constexpr std::chrono::nanoseconds kFirstWait = 1s;
constexpr std::chrono::nanoseconds kLongestWait = 1min;

}  // namespace

ClusterAgent::ClusterAgent(EventLoop& loop, const settings::Values& values, const std::string& node,
                           const std::string& admin_socket)
    : loop_(loop), wait_(kFirstWait) {
  process_.emplace(loop, kPatienceTimer);
  if (!values.is_set("cluster.manager")) return;
  const std::string program = beside_this_program("plexrl-cluster-client");
  std::vector<std::string> common = {"--cluster", values.text("cluster.manager"),
                                     "--tls",     values.text("cluster.tls"),
                                     "--node",    node};
  if (values.is_on("cluster.insecure_loopback")) common.emplace_back("--insecure-loopback");
  leaving_ = {program, "left"};
  leaving_.insert(leaving_.end(), common.begin(), common.end());
  arguments_ = {program, "agent", "--admin-socket", admin_socket, "--manager-pid", cat(::getpid())};
  arguments_.insert(arguments_.end(), common.begin(), common.end());
  start();
}

void ClusterAgent::start() {
  started_ = boot_now();
  if (process_->start(arguments_, kForEver, [this](const auto& end) { ended(end); })) return;
  ended({.text = cat(arguments_.front(), ": ", std::strerror(errno))});
}

void ClusterAgent::leave() {
  if (leaving_.empty()) return;
  process_.reset();  // kills it: what it would still say is not so any more
  std::vector<char*> argv;
  for (std::string& argument : leaving_) argv.push_back(argument.data());
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
  // Where it can't be started the cluster manager finds out by our silence.
  ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
}

void ClusterAgent::ended(const HelperProcess::End& end) {
  if (boot_now() - started_ > kLongestWait) wait_ = kFirstWait;
  if (end.text != last_words_) {
    log_line(LogLevel::kWarning, "cluster",
             cat("nobody tells the cluster manager of this node: ", end.text,
                 "; going on without, trying again"));
  }
  last_words_ = end.text;
  loop_.set_timer(kStartTimer, boot_now() + wait_, [this] { start(); });
  wait_ = std::min(2 * wait_, kLongestWait);
}

}  // namespace plexrl::nodemgr
