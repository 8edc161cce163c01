#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "clustermgr/host_port.h"
#include "clustermgr/tls/tls_folder.h"

namespace plexrl::clustermgr {

struct EtcdOptions {
  std::vector<HostPort> endpoints;
  std::string prefix;                ///< of all keys: several clusters may share an etcd
  std::optional<tls::TlsFiles> tls;  ///< none: no certificates, every endpoint is this machine
  std::string name;                  ///< of this manager, for others to read
  std::chrono::seconds lease{10};    ///< so long after its last sign a leader leads no more
  std::chrono::milliseconds patience{2000};      ///< with one endpoint, at each try
  std::chrono::milliseconds all_patience{6000};  ///< with all: etcd may choose a leader meanwhile
};

/// `etcd://HOST:PORT[,HOST:PORT]…[/PREFIX]`, the prefix `plexrl` where it is left out. Errors say
/// what is wrong.
[[nodiscard]] absl::StatusOr<EtcdOptions> parse_etcd_url(std::string_view url);

}  // namespace plexrl::clustermgr
