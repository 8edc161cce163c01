#include "nodemgr/policy/prefetch.h"

#include <algorithm>
#include <cmath>

#include "nodemgr/policy/wake.h"

namespace plexrl::nodemgr::policy {
namespace {

/// Between two prefetches of a gang.
constexpr Duration kPause = std::chrono::milliseconds(100);

struct Candidate {
  Gang* gang;
  Instant wakes;
};

/// When the gang is expected to want its GPUs; kNever: not known.
Instant next_want(const Gang& gang, Instant now) {
  if (gang.phase == Phase::kWaiting) return now;
  // One whose gap has lasted longer than any before has changed its ways.
  const Instant wake = predicted_wake(gang, now).value_or(kNever);
  return wake > now ? wake : kNever;
}

std::vector<Candidate> candidates_on(State& state, int gpu, Instant now) {
  std::vector<Candidate> candidates;
  for (auto& [id, gang] : state.gangs) {
    // One that is reserved gets its lease, and all of its memory, as soon as there is room.
    if (gang.holds_lease() || gang.reserved || gang.paused || gang.exiting) continue;
    if (gang.standing == Standing::kBarred) continue;
    if (gang.absence != Absence::kHere || (gang.gpus & gpu_bit(gpu)) == 0) continue;
    auto memory = gang.memory.find(gpu);
    if (memory == gang.memory.end() || memory->second.lacking() == 0) continue;
    // A process loads on one GPU at a time.
    const bool is_coming = std::any_of(gang.memory.begin(), gang.memory.end(),
                                       [](const auto& entry) { return entry.second.coming != 0; });
    if (memory->second.leaving || is_coming) continue;
    const Instant wakes = next_want(gang, now);
    if (wakes != kNever) candidates.push_back({&gang, wakes});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.wakes < b.wakes; });
  return candidates;
}

/// A lease is about to change hands there, or memory moves, that of another prefetch too.
bool is_link_wanted(const State& state, int gpu) {
  return std::any_of(state.gangs.begin(), state.gangs.end(), [&](const auto& entry) {
    const Gang& gang = entry.second;
    const bool covers = ((gang.gpus | gang.held) & gpu_bit(gpu)) != 0;
    const bool moves = gang.phase == Phase::kLoading || gang.phase == Phase::kDraining;
    if (covers && (moves || gang.reserved || gang.lacks_memory)) return true;
    auto memory = gang.memory.find(gpu);
    return memory != gang.memory.end() && (memory->second.leaving || memory->second.coming != 0);
  });
}

}  // namespace

void prefetch(State& state, Instant now, std::vector<Decision>& out, Instant& wake) {
  const double share = std::min(state.config.prefetch_share, 1.0);
  if (share <= 0) return;
  for (const auto& [index, gpu] : state.gpus) {
    if (gpu.frozen || gpu.departing != 0 || is_link_wanted(state, index)) continue;
    for (const Candidate& candidate : candidates_on(state, index, now)) {
      GangMemory& memory = candidate.gang->memory.at(index);
      const std::int64_t free = state.free_bytes(index);
      const std::int64_t bytes = std::min(memory.lacking(), free);
      if (bytes <= 0) break;
      const double ns_per_byte = gpu.in_ns_per_byte / share;
      // A quarter more than it takes, as the wake is a guess.
      const Duration lead{std::llround(1.25 * ns_per_byte * static_cast<double>(bytes))};
      const Instant due = std::max(candidate.wakes - lead, memory.prefetch_not_before);
      if (due > now) {
        wake = std::min(wake, due);
        continue;
      }
      memory.coming = bytes;
      memory.prefetch_not_before = now + kPause;
      Decision decision;
      decision.kind = Decision::Kind::kPrefetch;
      decision.gang = candidate.gang->id;
      decision.gpus = gpu_bit(index);
      decision.gpu = index;
      decision.bytes = bytes;
      decision.bytes_per_s = 1e9 / ns_per_byte;
      decision.reason = candidate.gang->phase == Phase::kWaiting ? "it waits" : "it wakes soon";
      decision.figures = {{"wakes_in_ns", static_cast<double>((candidate.wakes - now).count())},
                          {"lead_ns", static_cast<double>(lead.count())},
                          {"missing_bytes", static_cast<double>(memory.missing())},
                          {"free_bytes", static_cast<double>(free)},
                          {"in_ns_per_byte", gpu.in_ns_per_byte}};
      out.push_back(std::move(decision));
      break;
    }
  }
}

}  // namespace plexrl::nodemgr::policy
