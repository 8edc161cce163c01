#include "nodemgr/settings/utf8.h"

#include <algorithm>

namespace plexrl::nodemgr {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

/// How many bytes at the beginning of the text are one character; 0: none.
std::size_t character(std::string_view text) {
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

}  // namespace

std::string as_utf8(std::string_view text, std::size_t most) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = character(text);
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

std::string as_line(std::string_view text, std::size_t most) {
  std::string line = as_utf8(text, most);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line;
}

}  // namespace plexrl::nodemgr
