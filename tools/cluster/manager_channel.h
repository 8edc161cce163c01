#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

/// The way to a cluster manager, for whoever asks it something.
namespace plexrl::cluster_tool {

struct ManagerAddress {
  std::string host_port;           ///< HOST:PORT
  std::string tls_folder;          ///< ca.pem, cert.pem, key.pem
  bool insecure_loopback = false;  ///< no certificates; HOST must be this machine
};

/// Connects at the first call. Errors: bad addresses, files that are not there, each with what to
/// do.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> open_channel(
    const ManagerAddress& address);

/// The outcome of a call in words: what the manager said, or why it can't be reached.
[[nodiscard]] absl::Status as_status(const grpc::Status& status, const ManagerAddress& address);

}  // namespace plexrl::cluster_tool
