#include "nodemgr/cluster_agent.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "nodemgr/clock.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

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
    : loop_(loop), wait_(kFirstWait), process_(loop, kPatienceTimer) {
  if (!values.is_set("cluster.manager")) return;
  arguments_ = {beside_this_program("plexrl-cluster-client"),
                "agent",
                "--cluster",
                values.text("cluster.manager"),
                "--tls",
                values.text("cluster.tls"),
                "--node",
                node,
                "--admin-socket",
                admin_socket,
                "--manager-pid",
                cat(::getpid())};
  if (values.is_on("cluster.insecure_loopback")) arguments_.emplace_back("--insecure-loopback");
  start();
}

void ClusterAgent::start() {
  started_ = boot_now();
  if (process_.start(arguments_, kForEver, [this](const auto& end) { ended(end); })) return;
  ended({.text = cat(arguments_.front(), ": ", std::strerror(errno))});
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
