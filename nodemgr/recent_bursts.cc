#include "nodemgr/recent_bursts.h"

#include <algorithm>

namespace plexrl::nodemgr {

void RecentBursts::look(const policy::State& state) {
  std::erase_if(gangs_, [&](const auto& entry) { return !state.gangs.contains(entry.first); });
  for (const auto& [id, gang] : state.gangs) look(gang, gangs_[id]);
}

void RecentBursts::look(const policy::Gang& gang, Seen& seen) {
  const bool has_ended = gang.in_gap && (!seen.in_gap || gang.gap_since != seen.gap_since);
  if (has_ended) {
    // A burst that was over before anybody looked began when its work did, at the latest.
    const auto latest = gang.gap_since - gang.burst_before;
    auto wanted = seen.wanted.count() != 0 && !seen.in_gap ? std::min(seen.wanted, latest) : latest;
    // Processes tell of the same moment by clocks of their own: what they say may overlap a little.
    if (!seen.bursts.empty()) wanted = std::max(wanted, seen.bursts.back().ended);
    const auto ended = std::max(wanted, gang.gap_since);
    seen.bursts.push_back({wanted, ended, std::min(gang.burst_before, ended - wanted)});
    if (seen.bursts.size() > kMost) seen.bursts.pop_front();
    seen.wanted = std::chrono::nanoseconds{0};
  } else if (!gang.in_gap && (seen.in_gap || seen.wanted.count() == 0)) {
    // It waits at the gate, or computes under a lease that it still has.
    seen.wanted = gang.wants ? gang.want_since : gang.busy_since;
  }
  seen.in_gap = gang.in_gap;
  seen.gap_since = gang.gap_since;
}

const std::deque<RecentBursts::Burst>& RecentBursts::of(policy::GangId gang) const {
  static const std::deque<Burst> kNone;
  const auto it = gangs_.find(gang);
  return it == gangs_.end() ? kNone : it->second.bursts;
}

}  // namespace plexrl::nodemgr
