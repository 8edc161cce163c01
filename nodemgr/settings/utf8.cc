#include "nodemgr/settings/utf8.h"

#include <algorithm>

namespace plexrl::nodemgr {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

std::size_t utf8_character(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first < 0xc2   ? 0
                            : first < 0xe0 ? 2
                            : first < 0xf0 ? 3
                            : first < 0xf5 ? 4
                                           : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte_at(text, at) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte_at(text, 1);
  const bool is_too_long = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool is_no_character = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return is_too_long || is_no_character ? 0 : bytes;
}

std::string as_utf8(std::string_view text, std::size_t most) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = utf8_character(text);
    const std::size_t taken = std::max<std::size_t>(bytes, 1);
    if (out.size() + taken > most) break;
    if (bytes == 0) {
      out += '?';
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(taken);
  }
  return out;
}

}  // namespace plexrl::nodemgr
