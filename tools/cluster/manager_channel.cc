#include "tools/cluster/manager_channel.h"

#include "clustermgr/host_port.h"
#include "clustermgr/tls/tls_folder.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::cluster_tool {
namespace {

using nodemgr::cat;

/// gRPC's words for a connection that did not come about, and what they mean here.
std::string hint_of(const std::string& words, const ManagerAddress& address) {
  const auto says = [&](const char* part) { return words.find(part) != std::string::npos; };
  if (says("WRONG_VERSION_NUMBER") || says("wrong version number")) {
    return ": it listens without certificates (network.insecure_loopback): use "
           "--insecure-loopback, or start it with certificates";
  }
  if (says("CERTIFICATE_VERIFY_FAILED") || says("certificate verify failed") ||
      says("Hostname Verification") || says("Peer name")) {
    return cat(
        ": its certificate has expired, does not name this host, or is not one of the "
        "authority in ",
        address.tls_folder, "/ca.pem: `plexrl-ctl tls init DIR --manager HOST` makes one");
  }
  if (address.insecure_loopback && says("Socket closed")) {
    return ": it wants certificates: leave out --insecure-loopback";
  }
  return ": is plexrl-clustermgr running there?";
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> open_channel(const ManagerAddress& address) {
  const auto host_port = clustermgr::parse_host_port(address.host_port);
  if (!host_port.ok()) return host_port.status();
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (address.insecure_loopback) {
    if (!clustermgr::is_loopback(host_port->host)) {
      return nodemgr::invalid("without certificates only this machine can be asked, not ",
                              address.host_port);
    }
    credentials = grpc::InsecureChannelCredentials();
  } else {
    auto files = clustermgr::tls::read_tls_folder(address.tls_folder);
    if (!files.ok()) return files.status();
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = std::move(files->authorities);
    options.pem_private_key = std::move(files->own.key);
    options.pem_cert_chain = std::move(files->own.certificate);
    credentials = grpc::SslCredentials(options);
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Without it channels of one process to one address share a connection, and its certificate.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Whoever calls waits between tries by itself; one that finds the connection down shall try it.
  constexpr int kReconnectMs = 250;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
  return grpc::CreateCustomChannel(text_of(*host_port), credentials, arguments);
}

absl::Status as_status(const grpc::Status& status, const ManagerAddress& address) {
  if (status.ok()) return absl::OkStatus();
  std::string words = status.error_message();
  const bool has_answered = status.error_details() == clustermgr::kAnswered;
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !has_answered) {
    words = cat("the cluster manager at ", address.host_port, " can't be reached (", words, ")",
                hint_of(words, address));
  }
  return {static_cast<absl::StatusCode>(status.error_code()), words};
}

}  // namespace plexrl::cluster_tool
