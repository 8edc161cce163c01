#include "nodemgr/policy/wake.h"

#include <algorithm>

namespace plexrl::nodemgr::policy {

std::optional<Instant> predicted_wake(const Gang& gang, Instant now) {
  if (!gang.in_gap) return std::nullopt;
  const Durations* gaps = gang.profile.after(gang.burst_before);
  if (gaps == nullptr) return std::nullopt;
  const Duration so_far = std::max(Duration{0}, now - gang.gap_since);
  return now + gaps->quantile_beyond(so_far, 0.5);
}

}  // namespace plexrl::nodemgr::policy
