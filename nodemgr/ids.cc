#include "nodemgr/ids.h"

#include <sys/random.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace plexrl::nodemgr {

wire::Id128 random_id() {
  wire::Id128 id{};
  if (::getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) std::abort();
  return id;
}

std::string id_text(const wire::Id128& id) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(id.hi),
                static_cast<unsigned long long>(id.lo));
  return text;
}

std::optional<wire::Id128> parse_id(std::string_view text) {
  wire::Id128 id{};
  if (text.size() != 32) return std::nullopt;
  auto hi = std::from_chars(text.data(), text.data() + 16, id.hi, 16);
  auto lo = std::from_chars(text.data() + 16, text.data() + 32, id.lo, 16);
  if (hi.ec != std::errc{} || hi.ptr != text.data() + 16) return std::nullopt;
  if (lo.ec != std::errc{} || lo.ptr != text.data() + 32) return std::nullopt;
  return id;
}

bool equal_secrets(const wire::Id128& a, const wire::Id128& b) {
  return ((a.hi ^ b.hi) | (a.lo ^ b.lo)) == 0;
}

}  // namespace plexrl::nodemgr
