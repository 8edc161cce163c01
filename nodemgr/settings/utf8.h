#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plexrl::nodemgr {

/// The text with '?' for each byte that is part of no character, and no more of it than `most`
/// bytes: traces and JSON are UTF-8, and the names that users give may be anything. (RFC 3629,
/// section 4: no surrogates, nothing longer than it has to be, nothing beyond U+10FFFF.)
std::string as_utf8(std::string_view text, std::size_t most = std::string_view::npos);

/// Likewise, with '?' for control characters too: it is shown in tables and logs, a line each.
std::string as_line(std::string_view text, std::size_t most = std::string_view::npos);

}  // namespace plexrl::nodemgr
