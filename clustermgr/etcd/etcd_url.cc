#include "clustermgr/etcd/etcd_url.h"

#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr {

absl::StatusOr<EtcdOptions> parse_etcd_url(std::string_view url) {
  constexpr std::string_view kScheme = "etcd://";
  if (url.substr(0, kScheme.size()) != kScheme) {
    return nodemgr::invalid("'", std::string(url),
                            "': write etcd://HOST:PORT[,HOST:PORT]…[/PREFIX]");
  }
  std::string_view rest = url.substr(kScheme.size());
  EtcdOptions options;
  options.prefix = "plexrl";
  if (const auto slash = rest.find('/'); slash != std::string_view::npos) {
    options.prefix = std::string(rest.substr(slash + 1));
    rest = rest.substr(0, slash);
    if (options.prefix.empty() || options.prefix.back() == '/') {
      return nodemgr::invalid("'", std::string(url), "': the prefix is empty or ends with a slash");
    }
  }
  while (true) {
    const auto comma = rest.find(',');
    const absl::StatusOr<HostPort> one = parse_host_port(rest.substr(0, comma));
    if (!one.ok())
      return nodemgr::invalid("'", std::string(url), "': ", nodemgr::message_of(one.status()));
    options.endpoints.push_back(*one);
    if (comma == std::string_view::npos) return options;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace plexrl::clustermgr
