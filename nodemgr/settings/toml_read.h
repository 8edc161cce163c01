#pragma once

#include <toml++/toml.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

/// What the readers of TOML files share: the daemon's settings, and its teams.
namespace plexrl::nodemgr::settings {

/// Errors name the file, with the line where it is the content that is wrong. A file that is not
/// there is NotFound; one that can't be read says why.
[[nodiscard]] absl::StatusOr<toml::table> read_toml(const std::string& path);

/// "FILE:LINE" of a node; "FILE" where it has no line of its own.
std::string place_of(const std::string& path, const toml::node& node);

/// "PLACE: unknown KIND 'NAME'", with the nearest of the `known` names.
absl::Status unknown_name(std::string_view kind, std::string_view name, const std::string& place,
                          const std::vector<std::string>& known);

}  // namespace plexrl::nodemgr::settings
