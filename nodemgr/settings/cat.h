#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"

/// Building one line of text from parts. Debian's abseil has a string_view of its own, so its
/// StrCat does not take std::string_view.
namespace plexrl::nodemgr {

inline void append_part(std::string& out, std::string_view part) { out.append(part); }
inline void append_part(std::string& out, absl::string_view part) {
  out.append(part.data(), part.size());
}
inline void append_part(std::string& out, const std::string& part) { out.append(part); }
inline void append_part(std::string& out, const char* part) { out.append(part); }
inline void append_part(std::string& out, char part) { out.push_back(part); }
template <typename Number>
requires(std::is_arithmetic_v<Number>) void append_part(std::string& out, Number part) {
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof text, part);
  out.append(text, end);
}

/// The parts, one after the other; numbers in decimal.
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (append_part(out, parts), ...);
  return out;
}

/// A status whose message is the parts.
template <typename... Parts>
absl::Status invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(cat(parts...));
}
template <typename... Parts>
absl::Status failed(const Parts&... parts) {
  return absl::UnknownError(cat(parts...));
}

/// The status's message, as standard text.
inline std::string message_of(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace plexrl::nodemgr
