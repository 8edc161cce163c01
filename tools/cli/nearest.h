#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plexrl::cli {

/// ` (did you mean X?)`, or nothing when no known word is near. To be put at the end of a message.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace plexrl::cli
