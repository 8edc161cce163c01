#include "tools/cluster/verbs.h"

#include <nlohmann/json.hpp>

#include "nodemgr/settings/cat.h"
#include "proto/cluster.grpc.pb.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"

namespace plexrl::cluster_tool {
namespace {

namespace v1 = cluster::v1;
using Json = nlohmann::ordered_json;
using nodemgr::cat;

constexpr int kSchema = 1;
/// A manager that takes connections and does not answer.
constexpr std::chrono::seconds kPatience(60);

template <typename Request, typename Reply>
using Call = grpc::Status (v1::Cluster::Stub::*)(grpc::ClientContext*, const Request&, Reply*);

template <typename Request, typename Reply>
absl::StatusOr<Reply> ask(const ManagerAddress& manager, Call<Request, Reply> call,
                          const Request& request) {
  const auto channel = open_channel(manager);
  if (!channel.ok()) return channel.status();
  const auto stub = v1::Cluster::NewStub(*channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  Reply reply;
  absl::Status status = as_status((stub.get()->*call)(&context, request, &reply), manager);
  if (!status.ok()) return status;
  return reply;
}

Json null_if_empty(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

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
