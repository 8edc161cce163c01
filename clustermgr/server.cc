#include "clustermgr/server.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include "clustermgr/gatekeeper.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"
#include "proto/cluster.grpc.pb.h"

namespace plexrl::clustermgr {
namespace {

using nodemgr::cat;
using tls::Role;

const char* name_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return "OK";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case grpc::StatusCode::NOT_FOUND:
      return "NOT_FOUND";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case grpc::StatusCode::UNAUTHENTICATED:
      return "UNAUTHENTICATED";
    case grpc::StatusCode::UNAVAILABLE:
      return "UNAVAILABLE";
    default:
      return "OTHER";
  }
}

class Service final : public cluster::v1::Cluster::Service {
 public:
  Service(Gatekeeper gatekeeper, const ServerOptions& options, Cluster& cluster, Metrics& metrics)
      : gatekeeper_(std::move(gatekeeper)),
        report_every_(options.report_every),
        ask_again_(options.ask_again),
        cluster_(cluster),
        metrics_(metrics) {}

  const Gatekeeper& gatekeeper() const { return gatekeeper_; }

  grpc::Status GetStatus(grpc::ServerContext* context, const cluster::v1::GetStatusRequest*,
                         cluster::v1::GetStatusReply* reply) override {
    return answer("GetStatus", *context, {Role::kUser, Role::kAdmin, Role::kNode, Role::kManager},
                  [&](const tls::Identity& caller) {
                    const Cluster::Status status = cluster_.status();
                    reply->set_cluster_id(status.cluster_id);
                    reply->set_generation(status.generation);
                    reply->set_version(PLEXRL_VERSION);
                    reply->set_not_ready_reason(status.not_ready_reason);
                    reply->set_caller(tls::text_of(caller));
                    reply->set_uptime_s(std::chrono::duration<double>(status.uptime).count());
                    return absl::OkStatus();
                  });
  }

  grpc::Status ReportNode(grpc::ServerContext* context,
                          const cluster::v1::ReportNodeRequest* request,
                          cluster::v1::ReportNodeReply* reply) override {
    return answer("ReportNode", *context, {Role::kNode}, [&](const tls::Identity& caller) {
      absl::Status status = tls::check_name(request->node());
      if (status.ok() && gatekeeper_.has_tls() && caller.name != request->node()) {
        status = absl::PermissionDeniedError(
            cat("the certificate is of ", tls::text_of(caller), ", and the report of node ",
                request->node(), ": make one with `plexrl-ctl tls init DIR --node ",
                request->node(), "`, or start the node manager with --node ", caller.name));
      }
      if (status.ok()) status = cluster_.report(*request);
      if (!status.ok()) return status;
      const Cluster::Status now = cluster_.status();
      reply->set_cluster_id(now.cluster_id);
      reply->set_generation(now.generation);
      reply->set_report_every_s(std::chrono::duration<double>(report_every_).count());
      return absl::OkStatus();
    });
  }

  grpc::Status ListNodes(grpc::ServerContext* context, const cluster::v1::ListNodesRequest*,
                         cluster::v1::ListNodesReply* reply) override {
    return answer("ListNodes", *context, {Role::kUser, Role::kAdmin}, [&](const tls::Identity&) {
      *reply = cluster_.nodes();
      return absl::OkStatus();
    });
  }

  grpc::Status PlaceJob(grpc::ServerContext* context, const cluster::v1::PlaceJobRequest* request,
                        cluster::v1::PlaceJobReply* reply) override {
    return answer("PlaceJob", *context, {Role::kUser, Role::kAdmin}, [&](const auto& caller) {
      const std::string& user = request->job().user();
      if (caller.role == Role::kUser && caller.name != user) {
        return absl::PermissionDeniedError(
            cat("the certificate is of ", tls::text_of(caller), ", and the job of user ", user,
                ": use a certificate made with `plexrl-ctl tls init DIR --user ", user, "`"));
      }
      absl::StatusOr<cluster::v1::Placement> placement = cluster_.place(*request);
      if (!placement.ok()) return placement.status();
      *reply->mutable_placement() = *std::move(placement);
      reply->set_ask_again_s(std::chrono::duration<double>(ask_again_).count());
      return absl::OkStatus();
    });
  }

  grpc::Status EndPlacement(grpc::ServerContext* context,
                            const cluster::v1::EndPlacementRequest* request,
                            cluster::v1::EndPlacementReply*) override {
    return answer("EndPlacement", *context, {Role::kUser, Role::kAdmin}, [&](const auto& caller) {
      return cluster_.end_placement(*request, caller.role == Role::kUser ? caller.name : "");
    });
  }

  grpc::Status GetPlacement(grpc::ServerContext* context,
                            const cluster::v1::GetPlacementRequest* request,
                            cluster::v1::GetPlacementReply* reply) override {
    return answer("GetPlacement", *context, {Role::kUser, Role::kAdmin}, [&](const tls::Identity&) {
      absl::StatusOr<cluster::v1::Placement> placement = cluster_.placement(request->job());
      if (!placement.ok()) return placement.status();
      *reply->mutable_placement() = *std::move(placement);
      return absl::OkStatus();
    });
  }

 private:
  /// Lets `work` answer if the caller has one of `roles`; absl's codes are gRPC's.
  template <typename Work>
  grpc::Status answer(const char* method, const grpc::ServerContext& context,
                      std::initializer_list<Role> roles, Work work) {
    const absl::StatusOr<tls::Identity> caller = gatekeeper_.admit(context, roles);
    const absl::Status status = caller.ok() ? work(*caller) : caller.status();
    const auto code = static_cast<grpc::StatusCode>(status.raw_code());
    metrics_.count_request(method, name_of(code));
    if (status.ok()) return grpc::Status::OK;
    return {code, nodemgr::message_of(status), kAnswered};
  }

  Gatekeeper gatekeeper_;
  const std::chrono::nanoseconds report_every_, ask_again_;
  Cluster& cluster_;
  Metrics& metrics_;
};

/// gRPC's own lines (a peer that hung up, a port scan) are no news; what matters we say ourselves.
void log_of_grpc(gpr_log_func_args* line) {
  nodemgr::log_line(nodemgr::LogLevel::kDebug, "grpc", line->message);
}

class GrpcServer final : public Server {
 public:
  explicit GrpcServer(std::unique_ptr<Service> service) : service_(std::move(service)) {}
  ~GrpcServer() override { stop(); }

  absl::Status start(const ServerOptions& options) {
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota("plexrl-clustermgr");
    quota.SetMaxThreads(options.max_threads);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
    // A second manager on the same port is an error, not half of the requests.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    constexpr int kLookAfterMs = 30'000;  // a peer whose machine died sends no end of connection
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kLookAfterMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddListeningPort(text_of(options.listen), service_->gatekeeper().credentials(), &port_);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return nodemgr::failed("can't listen on ", text_of(options.listen),
                             ": is the port taken, or the address not of this machine, or the "
                             "certificate unusable? (--network-listen)");
    }
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void set_ready(bool ready) override {
    server_->GetHealthCheckService()->SetServingStatus(cluster::v1::Cluster::service_full_name(),
                                                       ready);
  }

  void stop() override {
    if (server_ == nullptr) return;
    constexpr std::chrono::seconds kMoment(2);
    server_->Shutdown(std::chrono::system_clock::now() + kMoment);
    server_->Wait();
    server_.reset();
  }

 private:
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::start(ServerOptions options, Cluster& cluster,
                                                      Metrics& metrics) {
  absl::StatusOr<Gatekeeper> gatekeeper = Gatekeeper::make(options.tls, metrics);
  if (!gatekeeper.ok()) return gatekeeper.status();
  gpr_set_log_function(log_of_grpc);
  grpc::EnableDefaultHealthCheckService(true);
  auto server = std::make_unique<GrpcServer>(
      std::make_unique<Service>(*std::move(gatekeeper), options, cluster, metrics));
  const absl::Status status = server->start(options);
  if (!status.ok()) return status;
  server->set_ready(cluster.status().not_ready_reason.empty());
  return server;
}

}  // namespace plexrl::clustermgr
