#pragma once

#include <chrono>

#include "absl/status/statusor.h"
#include "proto/cluster.grpc.pb.h"
#include "tools/cluster/manager_channel.h"

namespace plexrl::cluster_tool {

template <typename Request, typename Reply>
using Call = grpc::Status (cluster::v1::Cluster::Stub::*)(grpc::ClientContext*, const Request&,
                                                          Reply*);

/// One call; DeadlineExceeded when a manager that takes connections does not answer.
template <typename Request, typename Reply>
absl::StatusOr<Reply> call(const ManagerAddress& manager, cluster::v1::Cluster::Stub& stub,
                           Call<Request, Reply> method, const Request& request,
                           std::chrono::seconds patience = std::chrono::seconds(60)) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + patience);
  Reply reply;
  absl::Status status = as_status((stub.*method)(&context, request, &reply), manager);
  if (!status.ok()) return status;
  return reply;
}

/// On a connection of its own.
template <typename Request, typename Reply>
absl::StatusOr<Reply> ask(const ManagerAddress& manager, Call<Request, Reply> method,
                          const Request& request) {
  const auto channel = open_channel(manager);
  if (!channel.ok()) return channel.status();
  return call(manager, *cluster::v1::Cluster::NewStub(*channel), method, request);
}

}  // namespace plexrl::cluster_tool
