// plexrl-cluster-client: what plexrl-ctl, plexrl-run and the node manager ask of a cluster manager.
// A program of its own, so that none of them loads gRPC.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "nodemgr/settings/cat.h"
#include "tools/cli/exit_status.h"
#include "tools/cluster/agent.h"
#include "tools/cluster/manager_channel.h"
#include "tools/cluster/place.h"
#include "tools/cluster/verbs.h"

namespace plexrl::cluster_tool {
namespace {

struct PlaceLists {
  std::vector<std::string> apart_from, only_gpus;
};

std::string value_of(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread yet
  return value == nullptr ? "" : value;
}

/// The user's own folder if it is there, else the machine's.
std::string default_tls_folder() {
  if (std::string told = value_of("PLEXRL_TLS_DIR"); !told.empty()) return told;
  const std::string own = value_of("HOME") + "/.config/plexrl/tls";
  std::error_code error;
  return std::filesystem::exists(own, error) ? own : "/etc/plexrl/tls";
}

int complain(int status, const std::string& what) {
  std::cerr << "plexrl-ctl: " << what << "\n";
  return status;
}

int finish(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return complain(cli::kFailed, nodemgr::message_of(text.status()));
  std::cout << *text;
  return std::cout.flush() ? cli::kDone : complain(cli::kFailed, "stdout: can't be written");
}

void declare_manager(CLI::App& app, ManagerAddress& manager) {
  app.add_option("--cluster", manager.host_port, "the cluster manager, HOST:PORT (PLEXRL_CLUSTER)");
  app.add_option("--tls", manager.tls_folder,
                 "folder with ca.pem, cert.pem and key.pem (PLEXRL_TLS_DIR; else "
                 "~/.config/plexrl/tls, else /etc/plexrl/tls)");
  app.add_flag("--insecure-loopback", manager.insecure_loopback,
               "without certificates, to a manager on this machine that allows it "
               "(PLEXRL_INSECURE_LOOPBACK=true)");
}

/// For the node manager, which starts it when it ends.
CLI::App* declare_left(CLI::App& app, AgentOptions& agent) {
  CLI::App* const verb = app.add_subcommand("left", "tells that a node manager has ended");
  verb->group("");
  verb->add_option("--node", agent.node, "name of the node")->required();
  return verb;
}

/// For the node manager, which starts it.
CLI::App* declare_agent(CLI::App& app, AgentOptions& agent) {
  CLI::App* const verb = app.add_subcommand("agent", "tells the cluster manager of a node");
  verb->group("");  // not in --help
  verb->add_option("--node", agent.node, "name of the node")->required();
  verb->add_option("--admin-socket", agent.admin_socket, "of the node manager")->required();
  verb->add_option("--manager-pid", agent.node_manager, "the node manager")->required();
  return verb;
}

/// For plexrl-run, which starts it.
CLI::App* declare_place(CLI::App& app, PlaceOptions& place, PlaceLists& lists) {
  CLI::App* const verb = app.add_subcommand("place", "gets a job its place");
  verb->group("");
  cluster::v1::JobRequest& job = place.job;
  verb->add_option_function<std::string>("--name", [&](const auto& name) { job.set_name(name); });
  verb->add_option_function<std::string>("--team", [&](const auto& team) { job.set_team(team); });
  verb->add_option_function<int>("--gpus", [&](const auto& gpus) { job.set_gpus(gpus); });
  verb->add_option_function<int>("--nodes", [&](const auto& nodes) { job.set_nodes(nodes); });
  verb->add_option_function<std::uint64_t>("--memory-bytes",
                                           [&](const auto& it) { job.set_memory_bytes(it); });
  verb->add_option_function<double>("--max-slowdown",
                                    [&](const auto& ratio) { job.set_max_slowdown(ratio); });
  verb->add_flag_callback("--no-wait", [&] { job.set_no_wait(true); });
  verb->add_option("--apart-from", lists.apart_from)->allow_extra_args(false);
  verb->add_option("--only-gpu", lists.only_gpus)->allow_extra_args(false);
  verb->add_option("--id", place.id);
  verb->add_option("--admin-socket", place.admin_sockets)->allow_extra_args(false);
  return verb;
}

int run(int argc, char** argv) {
  // Its own lines on stderr say less than ours.
  setenv("GRPC_VERBOSITY", "NONE", 0);  // NOLINT(concurrency-mt-unsafe): one thread yet
  ManagerAddress manager;
  manager.host_port = value_of("PLEXRL_CLUSTER");
  manager.tls_folder = default_tls_folder();
  manager.insecure_loopback = value_of("PLEXRL_INSECURE_LOOPBACK") == "true";
  bool json = false;
  CLI::App app("Asks a cluster manager.", "plexrl-ctl");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--json", json, "one JSON object on stdout, nothing else");
  declare_manager(app, manager);
  CLI::App* const cluster = app.add_subcommand("cluster", "a whole cluster");
  cluster->require_subcommand(1);
  CLI::App* const status = cluster->add_subcommand("status", "the cluster manager itself");
  CLI::App* const nodes = cluster->add_subcommand("nodes", "every node that ever joined");
  AgentOptions agent;
  CLI::App* const agent_verb = declare_agent(app, agent);
  CLI::App* const left_verb = declare_left(app, agent);
  PlaceOptions place;
  PlaceLists lists;
  CLI::App* const place_verb = declare_place(app, place, lists);
  CLI::App* const placement = app.add_subcommand("placement", "where jobs were placed");
  placement->require_subcommand(1);
  CLI::App* const explain =
      placement->add_subcommand("explain", "where a job was placed, and why there or not yet");
  std::string job;
  explain->add_option("JOB", job, "its id, the beginning of one, slurm:ID, or its name")
      ->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(cli::kUsage, error.what());
  }
  if (manager.host_port.empty()) {
    return complain(cli::kUsage,
                    "which cluster manager? give --cluster HOST:PORT (PLEXRL_CLUSTER)");
  }
  if (agent_verb->parsed()) {
    agent.manager = manager;
    return run_agent(agent);
  }
  if (left_verb->parsed()) {
    agent.manager = manager;
    return say_left(agent);
  }
  if (place_verb->parsed()) {
    place.manager = manager;
    place.job.mutable_apart_from()->Assign(lists.apart_from.begin(), lists.apart_from.end());
    place.job.mutable_only_gpus()->Assign(lists.only_gpus.begin(), lists.only_gpus.end());
    return get_place(std::move(place));
  }
  if (explain->parsed()) return finish(explain_placement(manager, job, json));
  if (nodes->parsed()) return finish(show_nodes(manager, json));
  if (status->parsed()) return finish(show_status(manager, json));
  return complain(cli::kUsage, "no verb given");
}

}  // namespace
}  // namespace plexrl::cluster_tool

int main(int argc, char** argv) {
  return plexrl::cli::guarded_main("plexrl-ctl", plexrl::cluster_tool::run, argc, argv);
}
