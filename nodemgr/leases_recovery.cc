// Processes that come back: after a lost connection, or to the next manager.
#include <algorithm>
#include <iterator>
#include <utility>

#include "nodemgr/leases.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr wire::Epoch kNoEpoch{};

/// Is the session one of those that the grant was sent to?
bool names(const JournalRecord& grant, SessionKey session) {
  return cat(",", grant["sessions"], ",").find(cat(",", session, ",")) != std::string::npos;
}

}  // namespace

void Leases::remember(JournalRecord grant) {
  wire::Epoch epoch{grant.number("gen"), grant.number("ctr")};
  earlier_grants_[epoch] = std::move(grant);
}

std::vector<JournalRecord> Leases::remembered() const {
  std::vector<JournalRecord> records;
  for (const auto& [epoch, record] : earlier_grants_) {
    for (const auto& [id, session] : node_.sessions) {
      if (!names(record, id)) continue;
      records.push_back(record);
      break;
    }
  }
  return records;
}

bool Leases::is_journaled(const Session& session) const {
  auto it = earlier_grants_.find(session.believed);
  return it != earlier_grants_.end() && names(it->second, session.id);
}

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
  // Of a process that no journal named nothing was frozen.
  if (gang != nullptr && gang->epoch == kNoEpoch) adopt(gang->gpus & ~frozen_);
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
  // Those that the journal names first: against them no other claim holds.
  for (bool unproven : {false, true}) {
    for (auto& [id, gang] : gangs_) {
      bool is_due = (gang.gpus & gpus) != 0 && (gang.gpus & frozen_) == 0;
      if (is_due && gang.epoch == kNoEpoch) adopt(gang, unproven);
    }
  }
  for (auto& [id, gang] : gangs_) {
    if ((gang.gpus & gpus) != 0 && (gang.gpus & frozen_) == 0) settle(gang);
  }
}

void Leases::adopt(LeaseGang& gang, bool unproven) {
  wire::Epoch open{};
  each(gang, [&](Session& session) {
    if (session.gate_open && is_journaled(session) != unproven) {
      open = std::max(open, session.believed);
    }
  });
  if (open == kNoEpoch) return;
  for (const auto& [other_id, other] : gangs_) {
    if (other.epoch == kNoEpoch || (other.gpus & gang.gpus) == 0) continue;
    log_line(LogLevel::kError, "leases",
             cat("two gangs say that they hold the same GPU: job '", other.job->name, "' by lease ",
                 other.epoch.generation, ".", other.epoch.counter, ", job '", gang.job->name,
                 "' by lease ", open.generation, ".", open.counter,
                 unproven ? " that the journal does not have" : "", ": the second one is ended"));
    return;
  }
  if (unproven) {
    log_line(LogLevel::kWarning, "leases",
             cat("job '", gang.job->name, "' says that it holds lease ", open.generation, ".",
                 open.counter, ", which the journal does not have: it gives its GPUs back first"));
  }
  gang.epoch = open;
  gang.busy = true;
  // After a loss of the journal generations begin anew, and this epoch may be one that we would
  // use.
  if (open.generation == node_.generation) counter_ = std::max(counter_, open.counter);
  events_.push_back(policy::GangAdopted{gang.id, gang.gpus, unproven});
  journal_grant(gang);
  trace_state(gang, "running", "lease of the manager before");
}

/// Every process of the gang hears what became of the lease it believed to have; then no claim is
/// left.
void Leases::settle(LeaseGang& gang) {
  each(gang, [&](Session& session) {
    for (auto it = earlier_grants_.begin(); it != earlier_grants_.end();) {
      it = names(it->second, session.id) ? earlier_grants_.erase(it) : std::next(it);
    }
    if (session.believed == kNoEpoch || session.awaited) return;
    wire::LeaseRef claimed{std::exchange(session.believed, kNoEpoch)};
    bool was_open = std::exchange(session.gate_open, false);
    if (session.granted == claimed.epoch || session.client == nullptr) return;
    if (claimed.epoch == gang.epoch) {
      session.granted = gang.epoch;
      // Until it says what it is; it may have before others of its gang came back.
      if (session.edge == std::chrono::nanoseconds{0}) session.busy = true;
      if (!was_open) session.client->send(wire::Type::kReopen, 0, claimed);
    } else if (session.granted == kNoEpoch) {
      session.client->send(wire::Type::kRevoked, 0, claimed);
    }
  });
  if (gang.epoch != kNoEpoch) update_activity(gang, boot_now());
}

}  // namespace plexrl::nodemgr
