#include "clustermgr/host_port.h"

#include <arpa/inet.h>

#include <charconv>

#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr {

absl::StatusOr<HostPort> parse_host_port(std::string_view text) {
  constexpr int kLargest = 65535;
  const std::size_t colon = text.rfind(':');
  HostPort address;
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (brackets) host = host.substr(1, host.size() - 2);
    auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    const bool whole = error == std::errc{} && end == port.data() + port.size();
    const bool plain = brackets || host.find(':') == std::string_view::npos;
    if (whole && plain && !host.empty() && address.port >= 0 && address.port <= kLargest) {
      address.host = host;
      return address;
    }
  }
  return nodemgr::invalid("'", text, "' is no HOST:PORT, as in node1:7460 or [::1]:7460");
}

std::string text_of(const HostPort& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return nodemgr::cat(is_v6 ? "[" : "", address.host, is_v6 ? "]:" : ":", address.port);
}

bool is_loopback(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

}  // namespace plexrl::clustermgr
