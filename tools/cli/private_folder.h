#pragma once

#include <optional>
#include <string>

namespace plexrl::cli {

/// Why somebody else could pose as this user's node manager in `folder`: it, or a folder above it,
/// belongs to another user than root, or anybody may write to it (above it: and may also rename
/// what is others', unlike in /tmp). One line that names that folder and the remedy. Nothing when
/// only this user and root can. Folders that are not there yet are fine, or can't be made.
std::optional<std::string> why_not_private(const std::string& folder);

/// The folder that a file lies in.
std::string folder_of(const std::string& file);

}  // namespace plexrl::cli
