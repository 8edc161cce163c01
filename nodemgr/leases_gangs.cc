// Gangs that become one, and come apart again.
#include <algorithm>
#include <utility>

#include "nodemgr/clock.h"
#include "nodemgr/ids.h"
#include "nodemgr/leases.h"

namespace plexrl::nodemgr {
namespace {

constexpr wire::Epoch kNoEpoch{};

SwitchLog::Who who(const LeaseGang& gang) {
  return {id_text(gang.job->id), static_cast<std::uint64_t>(gang.id)};
}

}  // namespace

bool Leases::is_settled(const LeaseGang& gang) const {
  const policy::Gang* const state = state_of(gang.id);
  bool is_settled = state != nullptr && gang.attempt == 0 && !gang.loading &&
                    state->phase != policy::Phase::kDraining &&
                    state->phase != policy::Phase::kLoading &&
                    state->absence == policy::Absence::kHere && (gang.gpus & frozen_) == 0;
  for (const auto& [gpu, eviction] : gang.evictions)
    is_settled &= eviction.since == std::chrono::nanoseconds{0};
  for (const SessionKey id : gang.sessions) {
    const Session* const session = node_.find_session(id);
    is_settled &= session == nullptr || !session->awaited;
  }
  return is_settled;
}

bool Leases::unite(Session& a, Session& b) {
  LeaseGang* into = gang_of(a);
  LeaseGang* from = gang_of(b);
  if (into == nullptr || from == nullptr || into == from || a.job != b.job) return true;
  if (!events_.empty() || !is_settled(*into) || !is_settled(*from)) return false;
  // The one with a lease goes on; what its processes have under way is always its own.
  if ((into->epoch == kNoEpoch) != (from->epoch == kNoEpoch) ? into->epoch == kNoEpoch
                                                             : from->id < into->id) {
    std::swap(into, from);
  }
  std::uint64_t held = 0;
  for (LeaseGang* gang : {into, from}) {
    note_gaps(*gang);
    if (gang->epoch != kNoEpoch) held |= state_of(gang->id)->held;
  }
  merge(*into, *from);
  update_wants(*into);
  // One that covers a part of the GPUs only is given back and asked for again, over all.
  if (into->epoch != kNoEpoch && (into->gpus & ~held) != 0)
    events_.push_back(policy::WantsChanged{into->id, true, boot_now()});
  return true;
}

bool Leases::part(LeaseGang& gang, const std::set<SessionKey>& sessions) {
  std::uint64_t gpus = 0;
  bool is_coming = false;
  each(gang, [&](const Session& session) {
    for (const auto& [gpu, memory] : session.memory) {
      is_coming |= memory.coming != 0;
      if (sessions.count(session.id) != 0) gpus |= std::uint64_t{1} << gpu;
    }
  });
  if (is_coming || !events_.empty() || !is_settled(gang) || gpus == 0 || gpus == gang.gpus)
    return false;
  LeaseGang& fresh = create(*gang.job);
  fresh.gpus = gpus;
  gang.gpus &= ~gpus;
  for (const SessionKey id : sessions) {
    gang.sessions.erase(id);
    fresh.sessions.insert(id);
  }
  const bool holds = (state_of(gang.id)->held & gpus) != 0;
  if (holds) trace_state(fresh, "running", "gangs parted");  // before its processes are its
  each(fresh, [&](Session& session) {
    session.gang = static_cast<std::uint64_t>(fresh.id);
    trace_gang_of(session);
  });
  fresh.last_epoch = std::max(gang.epoch, gang.last_epoch);
  describe(fresh);
  const auto seen = gang.job->gaps_seen.find(gpus);  // of the last time that it was apart
  if (seen != gang.job->gaps_seen.end())
    events_.push_back(policy::GangRemembered{fresh.id, seen->second});
  events_.push_back(policy::GangParted{gang.id, fresh.id, gpus});
  describe(gang);
  update_wants(gang);
  update_wants(fresh);
  return true;
}

bool Leases::want_all(const Session& session) {
  const policy::Gang* const state = state_of(policy::GangId{session.gang});
  if (state == nullptr || state->wants || !state->holds_lease()) return false;
  events_.push_back(policy::WantsChanged{state->id, true, boot_now()});
  return true;
}

bool Leases::has_all_or_none(const Session& session) const {
  const auto gang = gangs_.find(session.gang);
  if (gang == gangs_.end() || gang->second.epoch == kNoEpoch) return true;
  const policy::Gang* const state = state_of(gang->second.id);
  return state != nullptr && state->holds_lease() && (gang->second.gpus & ~state->held) == 0;
}

void Leases::merge(LeaseGang& into, LeaseGang& from) {
  describe(into);
  describe(from);
  into.gpus |= from.gpus;
  into.attempt = 0;
  each(from, [&](Session& session) {
    session.gang = static_cast<std::uint64_t>(into.id);
    into.sessions.insert(session.id);
    trace_gang_of(session);
  });
  for (auto& [gpu, eviction] : from.evictions) into.take_over(gpu, eviction);
  into.last_epoch = std::max(into.last_epoch, from.last_epoch);
  if (from.epoch != kNoEpoch && into.epoch == kNoEpoch) {
    into.epoch = from.epoch;
  } else if (from.epoch != kNoEpoch) {
    journal_end(from.epoch);
  }
  events_.push_back(policy::GangsMerged{into.id, from.id});
  for (int gpu = 0; gpu < policy::kMaxGpus; ++gpu) {
    if ((from.gpus >> gpu & 1) != 0) memory_event(into, gpu);
  }
  switches_.gone(who(from), boot_now());
  trace_state(from, "gone", "merged");
  gangs_.erase(static_cast<std::uint64_t>(from.id));
}

}  // namespace plexrl::nodemgr
