#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "clustermgr/cluster.h"
#include "clustermgr/host_port.h"
#include "clustermgr/metrics.h"
#include "clustermgr/tls/tls_folder.h"

namespace plexrl::clustermgr {

struct ServerOptions {
  HostPort listen;
  /// None: no certificates, every caller is an admin. Only for loopback addresses.
  std::optional<tls::TlsFiles> tls;
  std::size_t max_message_bytes = 4 << 20;
  int max_threads = 64;
  std::chrono::nanoseconds report_every{std::chrono::seconds(2)};  ///< what nodes are told
  std::chrono::nanoseconds ask_again{std::chrono::seconds(1)};     ///< and who waits for a place
};

/// The gRPC side: proto/cluster.proto, gRPC's health service, and the check of every request's
/// certificate. Health: service "" is SERVING while the manager lives, "plexrl.cluster.v1.Cluster"
/// while it is ready.
class Server {
 public:
  /// `cluster` and `metrics` must outlive it.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Server>> start(ServerOptions options,
                                                                     Cluster& cluster,
                                                                     Metrics& metrics);
  virtual ~Server() = default;

  virtual int port() const = 0;
  virtual void set_ready(bool ready) = 0;
  /// No more requests are taken; those being answered have a moment to end.
  virtual void stop() = 0;
};

}  // namespace plexrl::clustermgr
