#include "nodemgr/policy/backoff.h"

#include <algorithm>

namespace plexrl::nodemgr::policy {
namespace {

/// splitmix64: one well-mixed number from a seed.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Duration backoff(Duration base, Duration cap, int failures, std::uint64_t seed) {
  int doublings = std::clamp(failures - 1, 0, 20);
  Duration plain = std::min(Duration(base.count() << doublings), cap);
  double spread = 0.8 + 0.4 * static_cast<double>(mix(seed) >> 11) * 0x1p-53;
  return Duration(static_cast<std::int64_t>(static_cast<double>(plain.count()) * spread));
}

}  // namespace plexrl::nodemgr::policy
