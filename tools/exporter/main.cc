// plexrl-exporter: serves a node manager's figures to Prometheus. The manager starts it.
#include <poll.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>

#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"
#include "tools/cli/exit_status.h"
#include "tools/ctl/admin_client.h"
#include "tools/exporter/families.h"

namespace plexrl::exporter {
namespace {

/// Asks at every scrape, from the server's threads.
class Node : public prometheus::Collectable {
 public:
  explicit Node(std::string socket) : socket_(std::move(socket)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    constexpr std::chrono::seconds kPatience(5);  // Prometheus gives up after ten
    const auto status = ctl::ask({socket_}, {{"verb", "status"}}, kPatience);
    std::vector<prometheus::MetricFamily> families = {up_family(status.ok())};
    if (status.ok()) {
      for (auto& family : families_of(*status)) families.push_back(std::move(family));
    }
    return families;
  }

 private:
  std::string socket_;
};

/// What is written to stdout is why it ended, for the manager's log.
int serve(const std::string& listen, const std::string& admin_socket) {
  const auto node = std::make_shared<Node>(admin_socket);
  try {
    constexpr std::size_t kThreads = 2;
    prometheus::Exposer exposer(listen, kThreads);
    exposer.RegisterCollectable(node);
    nodemgr::log_line(nodemgr::LogLevel::kInfo, "metrics",
                      nodemgr::cat("served port=", exposer.GetListeningPorts().front()));
    for (;;) ::pause();
  } catch (const std::exception& failure) {
    std::printf("metrics can't be served at %s: %s: is the port taken? (metrics.listen)\n",
                listen.c_str(), failure.what());
    return cli::kFailed;
  }
}

int run(int argc, char** argv) {
  std::string listen, admin_socket;
  pid_t manager = 0;
  CLI::App app(
      "Serves a node manager's figures to Prometheus; the manager starts it (metrics.listen).",
      "plexrl-exporter");
  app.add_option("--listen", listen, "HOST:PORT; port 0: one that is free")->required();
  app.add_option("--admin-socket", admin_socket, "of the node manager")->required();
  app.add_option("--manager-pid", manager, "the node manager, with which it ends")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? cli::kDone : cli::kUsage;
  }
  nodemgr::set_log_program("exporter");
  std::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != manager) return cli::kDone;  // it ended before that call
  return serve(listen, admin_socket);
}

}  // namespace
}  // namespace plexrl::exporter

int main(int argc, char** argv) { return plexrl::exporter::run(argc, argv); }
