#include "tools/cluster/verbs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "nodemgr/settings/cat.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/cluster/manager_call.h"

namespace plexrl::cluster_tool {
namespace {

namespace v1 = cluster::v1;
using Json = nlohmann::ordered_json;
using nodemgr::cat;

constexpr int kSchema = 1;

Json null_if_empty(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json json_of(const v1::Durations& durations) {
  if (durations.weight() == 0) return nullptr;
  return {{"weight", durations.weight()},
          {"p10_s", durations.p10_s()},
          {"p50_s", durations.p50_s()},
          {"p90_s", durations.p90_s()}};
}

Json json_of(const v1::Gpu& gpu) {
  return {{"uuid", gpu.uuid()},
          {"index", gpu.index()},
          {"name", gpu.name()},
          {"total_bytes", gpu.total_bytes()},
          {"usable_bytes", gpu.usable_bytes()},
          {"out_link_bytes_s", gpu.out_bytes_s()},
          {"in_link_bytes_s", gpu.in_bytes_s()}};
}

Json json_of(const v1::Gang& gang) {
  Json gpus = Json::array();
  for (const int gpu : gang.gpus()) gpus.push_back(gpu);
  return {{"id", gang.id()},
          {"state", gang.state()},
          {"gpus", gpus},
          {"exclusive_reason", null_if_empty(gang.exclusive_reason())},
          {"bursts", json_of(gang.bursts())},
          {"gaps", json_of(gang.gaps())},
          {"period_s", gang.period_s() > 0 ? Json(gang.period_s()) : Json()},
          {"period_cv_ratio", gang.period_s() > 0 ? Json(gang.period_cv()) : Json()},
          {"recent_bursts", gang.recent_size()}};
}

Json json_of(const v1::Job& job, const std::string& state) {
  Json gangs = Json::array();
  for (const v1::Gang& gang : job.gangs()) gangs.push_back(json_of(gang));
  return {{"id", job.id()},
          {"name", job.name()},
          {"user", job.user()},
          {"team", null_if_empty(job.team())},
          {"priority", job.priority()},
          {"state", state},
          {"promised_bytes", job.promised_bytes()},
          {"hbm_bytes", job.hbm_bytes()},
          {"host_bytes", job.host_bytes()},
          {"disk_bytes", job.disk_bytes()},
          {"unpageable_bytes", job.unpageable_bytes()},
          {"gangs", gangs}};
}

const char* state_of(const v1::Node& node) {
  if (node.state() == v1::Node::LEFT) return "left";
  return node.state() == v1::Node::LOST ? "lost" : "joined";
}

Json json_of(const v1::Node& node) {
  const v1::Inventory& inventory = node.inventory();
  Json gpus = Json::array();
  for (const v1::Gpu& gpu : inventory.gpus()) gpus.push_back(json_of(gpu));
  Json jobs = Json::array();
  for (const v1::Job& job : node.jobs()) {
    jobs.push_back(json_of(job, node.jobs_lost() ? "lost" : job.state()));
  }
  return {{"name", node.name()},
          {"state", state_of(node)},
          {"silent_s", node.silent_s()},
          {"clock_ahead_s", node.clock_ahead_s()},
          {"simulated", inventory.simulated()},
          {"draining", inventory.draining()},
          {"generation", inventory.generation()},
          {"host_budget_bytes", inventory.host_budget_bytes()},
          {"disk_budget_bytes", inventory.disk_budget_bytes()},
          {"gpus", gpus},
          {"jobs", jobs}};
}

std::string jobs_of(const v1::Node& node) {
  std::string names;
  for (const v1::Job& job : node.jobs()) {
    names += cat(names.empty() ? "" : " ", cli::printable(job.name()));
  }
  return names.empty() || !node.jobs_lost() ? names : cat("lost: ", names);
}

std::string table_of(const v1::ListNodesReply& reply) {
  using Align = cli::Table::Align;
  cli::Table table({{"NODE"},
                    {"STATE"},
                    {"SEEN", Align::kRight},
                    {"GPUS", Align::kRight},
                    {"HBM", Align::kRight},
                    {"HOST", Align::kRight},
                    {"LINK/S", Align::kRight},
                    {"JOBS"}});
  for (const v1::Node& node : reply.nodes()) {
    double hbm = 0;
    double link = 0;
    for (const v1::Gpu& gpu : node.inventory().gpus()) {
      hbm += static_cast<double>(gpu.usable_bytes());
      link = std::max(link, std::min(gpu.out_bytes_s(), gpu.in_bytes_s()));
    }
    table.add_row(
        {cli::printable(node.name()),
         cat(state_of(node), node.inventory().draining() ? ", draining" : ""),
         cat(cli::format_ns(node.silent_s() * 1e9), " ago"),
         cat(node.inventory().gpus_size(), node.inventory().simulated() ? " simulated" : ""),
         cli::format_bytes(hbm),
         cli::format_bytes(static_cast<double>(node.inventory().host_budget_bytes())),
         cli::format_bytes(link), jobs_of(node)});
  }
  return table.empty() ? "no node has joined yet: start plexrl-nodemgr --cluster HOST:PORT there\n"
                       : table.str();
}

}  // namespace

absl::StatusOr<std::string> show_nodes(const ManagerAddress& manager, bool json) {
  const auto reply = ask(manager, &v1::Cluster::Stub::ListNodes, v1::ListNodesRequest());
  if (!reply.ok()) return reply.status();
  if (!json) return table_of(*reply);
  bool simulated = false;
  Json nodes = Json::array();
  for (const v1::Node& node : reply->nodes()) {
    nodes.push_back(json_of(node));
    simulated |= node.inventory().simulated();
  }
  const Json answer = {
      {"schema", kSchema}, {"simulated", simulated}, {"node", nullptr}, {"nodes", nodes}};
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::string> show_status(const ManagerAddress& manager, bool json) {
  const auto reply = ask(manager, &v1::Cluster::Stub::GetStatus, v1::GetStatusRequest());
  if (!reply.ok()) return reply.status();
  if (json) {
    const Json answer = {{"schema", kSchema},
                         {"simulated", false},
                         {"node", nullptr},
                         {"cluster",
                          {{"id", reply->cluster_id()},
                           {"generation", reply->generation()},
                           {"version", reply->version()},
                           {"not_ready_reason", null_if_empty(reply->not_ready_reason())},
                           {"caller", reply->caller()},
                           {"uptime_s", reply->uptime_s()}}}};
    return answer.dump() + "\n";
  }
  const std::string& reason = reply->not_ready_reason();
  return cat("cluster ", cli::printable(reply->cluster_id()), " at ", manager.host_port,
             ", version ", cli::printable(reply->version()), ", start ", reply->generation(),
             ", up for ", cli::format_ns(reply->uptime_s() * 1e9), "\n",
             reason.empty() ? "ready" : cat("not ready: ", cli::printable(reason)),
             "\nthe certificate here is of ", cli::printable(reply->caller()), "\n");
}

}  // namespace plexrl::cluster_tool
