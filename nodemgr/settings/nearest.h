#pragma once

#include <span>
#include <string>
#include <string_view>

namespace plexrl::nodemgr::settings {

/// The candidate that takes the fewest single-character edits to reach from `word`, or empty when
/// none is near (more than a third of the word would change).
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

}  // namespace plexrl::nodemgr::settings
