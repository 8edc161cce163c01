#include "clustermgr/tls/identity.h"

#include <algorithm>
#include <array>

#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr::tls {
namespace {

using nodemgr::cat;
using nodemgr::invalid;

constexpr std::string_view kScheme = "plexrl:";
constexpr std::array kRoles = {Role::kManager, Role::kNode, Role::kUser, Role::kAdmin};

bool may_be_in_a_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kManager:
      return "manager";
    case Role::kNode:
      return "node";
    case Role::kUser:
      return "user";
    case Role::kAdmin:
      return "admin";
  }
  return "user";
}

std::string text_of(const Identity& who) { return cat(name_of(who.role), "/", who.name); }
std::string uri_of(const Identity& who) { return cat(kScheme, text_of(who)); }

absl::Status check_name(std::string_view name) {
  constexpr std::size_t kLongest = 128;
  if (!name.empty() && name.size() <= kLongest && name[0] != '.' && name[0] != '-' &&
      std::all_of(name.begin(), name.end(), may_be_in_a_name)) {
    return absl::OkStatus();
  }
  return invalid("'", name.substr(0, kLongest),
                 "' is no name: use letters, digits, '.', '_' and '-', at most 128");
}

absl::StatusOr<Identity> parse_uri(std::string_view uri) {
  const std::size_t slash = uri.find('/');
  if (uri.starts_with(kScheme) && slash != std::string_view::npos) {
    const std::string_view role = uri.substr(kScheme.size(), slash - kScheme.size());
    const std::string_view name = uri.substr(slash + 1);
    for (Role known : kRoles) {
      if (role == name_of(known) && check_name(name).ok()) {
        return Identity{known, std::string(name)};
      }
    }
  }
  return invalid("'", uri.substr(0, 200), "' is none of plexrl:node/NAME, plexrl:user/NAME, ",
                 "plexrl:admin/NAME, plexrl:manager/NAME");
}

}  // namespace plexrl::clustermgr::tls
