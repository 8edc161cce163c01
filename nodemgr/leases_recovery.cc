// Processes that come back: after a lost connection, or to the next manager.
#include <algorithm>

#include "nodemgr/leases.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr wire::Epoch kNoEpoch{};

}  // namespace

void Leases::resumed(Session& session) {
  LeaseGang* gang = gang_of(session);
  if (gang != nullptr && gang->epoch != kNoEpoch) {
    // Only its connection was lost.
    if (session.believed == gang->epoch) {
      session.granted = gang->epoch;
    } else {
      session.granted = kNoEpoch;
      if (!gang->loading) events_.push_back(policy::GangReturned{gang->id});
    }
  }
  thaw();
}

void Leases::thaw() {
  std::uint64_t awaited = 0;
  for (const auto& [id, session] : node_.sessions) {
    if (!session->awaited) continue;
    for (const auto& [gpu, memory] : session->memory) awaited |= std::uint64_t{1} << gpu;
  }
  if (awaited == frozen_) return;
  std::uint64_t thawed = frozen_ & ~awaited;
  frozen_ = awaited;
  for (const auto& [gpu, info] : node_.gpus) gpu_changed(gpu);
  adopt(thawed);
}

void Leases::adopt(std::uint64_t gpus) {
  for (auto& [id, gang] : gangs_) {
    if ((gang.gpus & gpus) == 0 || gang.epoch != kNoEpoch) continue;
    wire::Epoch open{};
    each(gang, [&](Session& session) {
      if (session.gate_open) open = std::max(open, session.believed);
    });
    std::uint64_t held = open == kNoEpoch ? 0 : gang.gpus;
    for (const auto& [gpu, info] : node_.gpus) {
      if ((held >> gpu & 1) == 0 || state_.holder(gpu) == nullptr) continue;
      log_line(LogLevel::kError, "leases",
               cat("two gangs say that they hold GPU ", gpu, ": job '", gang.job->name,
                   "' is taken as not holding it"));
      held = 0;
    }
    if (held != 0) {
      gang.epoch = open;
      gang.busy = true;
      events_.push_back(policy::GangAdopted{gang.id, held});
    }
    each(gang, [&](Session& session) {
      if (session.believed == kNoEpoch || session.client == nullptr) return;
      if (held != 0 && session.believed == open) {
        session.granted = open;
        session.busy = true;
        if (!session.gate_open) {
          session.client->send(wire::Type::kReopen, 0, wire::LeaseRef{open});
        }
      } else {
        session.client->send(wire::Type::kRevoked, 0, wire::LeaseRef{session.believed});
      }
    });
    if (held != 0) {
      journal_grant(gang);
      trace_state(gang, "running", "lease of the manager before");
    }
  }
}

}  // namespace plexrl::nodemgr
