#include "shim/fault_points.h"

#ifdef PLEXRL_FAULT_POINTS

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace plexrl::shim {

void fault_point(const char* name) noexcept {
  static const char* const wanted = std::getenv("PLEXRL_FAULT");
  static std::atomic<long> passages{0};
  if (wanted == nullptr) return;
  const std::size_t length = std::strcspn(wanted, ":");
  if (std::strlen(name) != length || std::strncmp(name, wanted, length) != 0) return;
  const long target = wanted[length] == ':' ? std::strtol(wanted + length + 1, nullptr, 10) : 1;
  if (passages.fetch_add(1) + 1 == target) std::raise(SIGKILL);
}

}  // namespace plexrl::shim

#endif
