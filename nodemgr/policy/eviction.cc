#include "nodemgr/policy/eviction.h"

#include <algorithm>

#include "nodemgr/policy/wake.h"

namespace plexrl::nodemgr::policy {
namespace {

constexpr double kSlowestBytesPerNs = 0.1;  // 100 MB/s

/// When the gang is expected to need its memory: as predicted (wake.h); where nothing is known, or
/// its gap has lasted longer than any before, as far ahead as its last use lies back, which is
/// least recently used first.
Instant next_use(const Gang& gang, Instant now) {
  if (gang.phase == Phase::kWaiting && !gang.is_kept_paused()) return now;
  const Instant wake = predicted_wake(gang, now).value_or(now);
  return wake > now ? wake : now + (now - gang.lease_ended);
}

bool is_better(const Gang& victim, const Gang& other, Instant now) {
  const Instant one = next_use(victim, now), two = next_use(other, now);
  return one != two ? one > two : victim.lease_ended < other.lease_ended;
}

Decision ask(const State& state, Gang& victim, const Gang& newcomer, int gpu, std::int64_t bytes,
             std::int64_t short_bytes, const char* reason, Instant now) {
  GangMemory& memory = victim.memory[gpu];
  memory.evict_asked = bytes;
  memory.leaving = true;
  auto slowest = static_cast<std::int64_t>(static_cast<double>(bytes) / kSlowestBytesPerNs);
  memory.evict_deadline = now + state.config.evict_patience + Duration(slowest);
  Decision decision;
  decision.kind = Decision::Kind::kEvict;
  decision.gang = victim.id;
  decision.other = newcomer.id;
  decision.gpus = gpu_bit(gpu);
  decision.gpu = gpu;
  decision.bytes = bytes;
  decision.reason = reason;
  decision.figures = {
      {"short_bytes", static_cast<double>(short_bytes)},
      {"resident_bytes", static_cast<double>(memory.resident)},
      {"unused_ns", static_cast<double>((now - victim.lease_ended).count())},
      {"next_use_in_ns", static_cast<double>((next_use(victim, now) - now).count())},
      {"out_ns_per_byte", state.gpus.at(gpu).out_ns_per_byte},
  };
  return decision;
}

/// Bytes that living gangs are giving up; does not wait any more for those past their deadline.
std::int64_t leaving_bytes(State& state, int gpu, Instant now, Instant& wake) {
  std::int64_t leaving = 0;
  for (auto& [id, gang] : state.gangs) {
    auto it = gang.memory.find(gpu);
    if (it == gang.memory.end() || it->second.evict_asked == 0) continue;
    GangMemory& memory = it->second;
    if (now >= memory.evict_deadline) {
      memory.evict_asked = 0;
      memory.evict_not_before = now + state.config.evict_patience;
      continue;
    }
    leaving += std::min(memory.evict_asked, memory.taken());
    wake = std::min(wake, memory.evict_deadline);
  }
  return leaving;
}

}  // namespace

Decision empty(const State& state, Gang& gang, int gpu, const char* reason, Instant now) {
  const std::int64_t bytes = gang.memory[gpu].taken();
  return ask(state, gang, gang, gpu, bytes, bytes, reason, now);
}

Gang* next_victim(State& state, int gpu, const Gang& newcomer, Instant now) {
  Gang* best = nullptr;
  for (auto& [id, gang] : state.gangs) {
    if (id == newcomer.id || gang.reserved) continue;
    if (gang.holds_lease()) continue;
    auto it = gang.memory.find(gpu);
    if (it == gang.memory.end()) continue;
    const GangMemory& memory = it->second;
    if (memory.taken() <= 0 || memory.leaving || now < memory.evict_not_before) continue;
    if (best == nullptr || is_better(gang, *best, now)) best = &gang;
  }
  return best;
}

Room make_room(State& state, const Gang& newcomer, int gpu, std::int64_t needed_bytes,
               const char* reason, Instant now, std::vector<Decision>& out, Instant& wake) {
  std::int64_t short_bytes = needed_bytes - state.free_bytes(gpu);
  if (needed_bytes <= 0 || short_bytes <= 0) return Room::kEnough;
  auto info = state.gpus.find(gpu);
  const std::int64_t departing = info == state.gpus.end() ? 0 : info->second.departing;
  std::int64_t leaving = leaving_bytes(state, gpu, now, wake);
  std::int64_t left = short_bytes - departing - leaving;
  while (left > 0) {
    Gang* victim = next_victim(state, gpu, newcomer, now);
    if (victim == nullptr) break;
    std::int64_t bytes = std::min(left, victim->memory[gpu].taken());
    out.push_back(ask(state, *victim, newcomer, gpu, bytes, short_bytes, reason, now));
    wake = std::min(wake, victim->memory[gpu].evict_deadline);
    left -= bytes;
    leaving += bytes;
  }
  if (leaving >= short_bytes) return Room::kLeaving;
  return leaving + departing > 0 ? Room::kComing : Room::kNone;
}

}  // namespace plexrl::nodemgr::policy
