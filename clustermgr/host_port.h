#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace plexrl::clustermgr {

/// An address to listen on or to reach: `HOST:PORT`, `[::1]:PORT` for IPv6.
struct HostPort {
  std::string host;  ///< without brackets
  int port = 0;
};
[[nodiscard]] absl::StatusOr<HostPort> parse_host_port(std::string_view text);

/// The details of an error that the manager itself has answered: one of the way to it has none.
inline constexpr char kAnswered[] = "plexrl-clustermgr";

/// As it was written.
std::string text_of(const HostPort& address);

/// Whether it can only be reached from this machine: localhost, 127.0.0.0/8, ::1.
bool is_loopback(const std::string& host);

}  // namespace plexrl::clustermgr
