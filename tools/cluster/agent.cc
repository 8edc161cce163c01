#include "tools/cluster/agent.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>

#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"
#include "proto/cluster.grpc.pb.h"
#include "tools/cli/exit_status.h"
#include "tools/cluster/report.h"

namespace plexrl::cluster_tool {
namespace {

namespace v1 = cluster::v1;
using namespace std::chrono_literals;
using nodemgr::cat;
using nodemgr::log_line;
using nodemgr::LogLevel;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kLongestWait = 10s;
constexpr auto kCallPatience = 10s;

/// What one round came to.
struct Round {
  absl::Status status;
  Seconds next{0};  ///< after a good one: what the cluster manager wants
};

Round report_once(const AgentOptions& options, v1::Cluster::Stub& stub) {
  const auto report = make_report(options.admin_socket, options.node);
  if (!report.ok()) return {report.status(), {}};
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
  v1::ReportNodeReply reply;
  const absl::Status status =
      as_status(stub.ReportNode(&context, *report, &reply), options.manager);
  constexpr Seconds kLeast = 10ms;
  return {status, std::max(kLeast, Seconds(reply.report_every_s()))};
}

/// Waits grow from a second to ten, spread so that nodes do not come all at once.
class Backoff {
 public:
  Seconds next() {
    const Seconds wait = wait_ * std::uniform_real_distribution<double>(0.75, 1.25)(random_);
    wait_ = std::min(2 * wait_, kLongestWait);
    return wait;
  }
  void reset() { wait_ = 1s; }

 private:
  Seconds wait_{1};
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace

int say_left(const AgentOptions& options) {
  const auto channel = open_channel(options.manager);
  if (!channel.ok()) return cli::kFailed;
  const auto stub = v1::Cluster::NewStub(*channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
  v1::ReportNodeRequest report;
  report.set_node(options.node);
  report.set_leaving(true);
  v1::ReportNodeReply reply;
  return stub->ReportNode(&context, report, &reply).ok() ? cli::kDone : cli::kFailed;
}

int run_agent(const AgentOptions& options) {
  nodemgr::set_log_program("cluster-agent");
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != options.node_manager) return cli::kDone;  // it ended before that call
  const auto channel = open_channel(options.manager);
  if (!channel.ok()) {
    std::printf("%s\n", nodemgr::message_of(channel.status()).c_str());
    return cli::kFailed;
  }
  const auto stub = v1::Cluster::NewStub(*channel);
  Backoff backoff;
  std::string said = "nothing yet";
  for (;;) {
    const Round round = report_once(options, *stub);
    std::string words = nodemgr::message_of(round.status);
    if (round.status.ok()) backoff.reset();
    // gRPC's words differ from try to try; what kind of failure it is does not.
    const std::string kind = cat(static_cast<int>(round.status.raw_code()));
    if (kind != said) {
      log_line(round.status.ok() ? LogLevel::kInfo : LogLevel::kWarning, "cluster",
               round.status.ok() ? cat("joined manager='", options.manager.host_port, "'")
                                 : cat(words, "; going on without it, trying again"));
    }
    said = kind;
    std::this_thread::sleep_for(round.status.ok() ? round.next : backoff.next());
  }
}

}  // namespace plexrl::cluster_tool
