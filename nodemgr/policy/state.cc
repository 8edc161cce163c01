#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr::policy {

std::int64_t State::free_bytes(int gpu) const {
  auto it = gpus.find(gpu);
  if (it == gpus.end()) return 0;
  std::int64_t free = it->second.usable - it->second.departing;
  for (const auto& [id, gang] : gangs) {
    auto memory = gang.memory.find(gpu);
    if (memory != gang.memory.end()) free -= memory->second.fixed + memory->second.taken();
  }
  return free;
}

Gang* State::holder(int gpu) {
  for (auto& [id, gang] : gangs) {
    if (gang.holds_lease() && (gang.held & gpu_bit(gpu)) != 0) return &gang;
  }
  return nullptr;
}

const Gang* State::kept_for(GpuMask gpus, const Gang& gang, Instant now) const {
  if (gang.is_kept_alone(now) || gang.exiting) return nullptr;
  for (const auto& [id, other] : gangs) {
    if (other.job != gang.job && other.is_kept_alone(now) && (other.gpus & gpus) != 0) {
      return &other;
    }
  }
  return nullptr;
}

}  // namespace plexrl::nodemgr::policy
