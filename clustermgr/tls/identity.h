#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

/// Who a certificate is for: `plexrl:ROLE/NAME`, the one URI in its subject alternative names.
namespace plexrl::clustermgr::tls {

/// manager: a cluster manager, serves; node: a node manager; user: asks and places jobs of its
/// own; admin: asks and changes everything.
enum class Role { kManager, kNode, kUser, kAdmin };

struct Identity {
  Role role = Role::kUser;
  std::string name;

  friend bool operator==(const Identity&, const Identity&) = default;
};

std::string_view name_of(Role role);       ///< "node"
std::string text_of(const Identity& who);  ///< "node/a1"
std::string uri_of(const Identity& who);   ///< "plexrl:node/a1"

/// Letters, digits, '.', '_' and '-', at most 128 of them, and no '.' or '-' first.
[[nodiscard]] absl::Status check_name(std::string_view name);

/// From `plexrl:node/a1`. Errors say what was wrong with it.
[[nodiscard]] absl::StatusOr<Identity> parse_uri(std::string_view uri);

}  // namespace plexrl::clustermgr::tls
