// Who has to leave, and who may come back.
#include <algorithm>
#include <utility>
#include <vector>

#include "nodemgr/admission.h"
#include "nodemgr/checkpoints.h"
#include "nodemgr/clock.h"
#include "nodemgr/ids.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::chrono::seconds kLookPause{1};  // while somebody waits for room

}  // namespace

/// A gang whose grant is held back, or of which an operation was cut off.
bool Checkpoints::begin_due_return() {
  for (const auto& [id, gang] : leases_.gangs()) {
    const policy::Gang* state = leases_.state_of(gang.id);
    bool is_due = leases_.is_held_back(gang) && state != nullptr &&
                  state->absence == policy::Absence::kReturns;
    for (const SessionKey key : gang.sessions) {
      const Session* session = living(key);
      is_due |= session != nullptr && session->unsettled && session->client != nullptr;
    }
    if (!is_due) continue;
    if (boot_now() < gang.not_returned_before) {
      set_timer(gang.not_returned_before);
      continue;
    }
    begin_return(gang);
    return true;
  }
  return false;
}

/// What processes that have ended, or want nothing any more, have left behind. True: the policy has
/// to be told first.
bool Checkpoints::settle_absences() {
  bool has_changed = false;
  for (const auto& [id, gang] : leases_.gangs()) {
    const policy::Gang* state = leases_.state_of(gang.id);
    if (state == nullptr) continue;
    const auto is_any = [&](bool Session::*fact) {
      return std::any_of(gang.sessions.begin(), gang.sessions.end(), [&](SessionKey key) {
        const Session* session = living(key);
        return session != nullptr && session->*fact;
      });
    };
    if (is_any(&Session::unsettled)) continue;
    const bool returns =
        state->absence == policy::Absence::kReturns && (state->holds_lease() || comes_back(*state));
    const auto absence = !is_any(&Session::away) ? policy::Absence::kHere
                         : returns               ? policy::Absence::kReturns
                                                 : policy::Absence::kAway;
    if (absence == state->absence) continue;
    if (absence == policy::Absence::kAway) place_away(gang.sessions);
    leases_.set_absence(id, absence);
    has_changed = true;
  }
  if (!has_changed) return false;
  set_timer(boot_now());
  room_changed_();
  return true;
}

/// Those of them that are in host memory take no room on their GPUs.
void Checkpoints::place_away(const std::set<SessionKey>& sessions) {
  std::set<SessionKey> away;
  for (const SessionKey key : sessions) {
    const Session* session = living(key);
    if (session != nullptr && session->away) away.insert(key);
  }
  node_.ledger.place(away, Ledger::Place::kAway);
}

/// A checkpointed gang that an administrator has paused would find no lease.
bool Checkpoints::comes_back(const policy::Gang& gang) {
  return gang.wants && !gang.is_kept_paused();
}

/// Checkpointed gangs that want their GPU come first, then the queue.
void Checkpoints::look_for_room() {
  node_.returning.clear();
  for (const auto& [id, gang] : leases_.gangs()) {
    const policy::Gang* state = leases_.state_of(gang.id);
    if (state == nullptr || state->absence != policy::Absence::kAway) continue;
    // One that was united with a gang on its GPUs may have a lease.
    if (!comes_back(*state) && !leases_.is_held_back(gang)) continue;
    LeaseGang& waiter = *leases_.find_gang(id);
    if (boot_now() < gang.not_returned_before) {
      node_.returning.push_back({gang.job->name, gang.gpus});
      set_timer(gang.not_returned_before);
      continue;
    }
    if (let_return(waiter)) return;
    node_.returning.push_back({gang.job->name, gang.gpus});
    make_room([&](const Ledger& ledger) { return ledger.can_return(waiter.sessions); }, id);
    if (operation_) return;
  }
  if (node_.draining) return;
  for (const auto& [key, job] : node_.jobs) {
    const Job& waiting = *job;
    const bool others_first =
        std::any_of(node_.returning.begin(), node_.returning.end(),
                    [&](const Node::Returning& gang) { return (gang.gpus & waiting.gpus) != 0; });
    if (waiting.admitted || others_first) continue;
    make_room([&](const Ledger& ledger) { return judge_by(ledger, node_, waiting).fits; }, 0);
    if (operation_) return;
  }
}

bool Checkpoints::let_return(LeaseGang& gang) {
  if (!node_.ledger.can_return(gang.sessions)) return false;
  node_.ledger.place(gang.sessions, Ledger::Place::kHere);
  leases_.set_absence(static_cast<std::uint64_t>(gang.id), policy::Absence::kReturns);
  set_timer(boot_now());
  return true;
}

/// Has the first of those gangs leave that have to, so that `fits` becomes true; nobody if that is
/// not possible.
void Checkpoints::make_room(const std::function<bool(const Ledger&)>& fits,
                            std::uint64_t for_gang) {
  const auto now = boot_now();
  std::vector<std::pair<std::chrono::nanoseconds, LeaseGang*>> idle;
  auto next = now + kLookPause;
  bool any = false;
  for (const auto& [id, gang] : leases_.gangs()) {
    const auto at = id == for_gang ? std::nullopt : may_leave_at(gang);
    if (!at) continue;
    any = true;
    if (*at > now) {
      next = std::min(next, *at);
    } else if (const std::string why = refusal(gang); !why.empty()) {
      note(*leases_.find_gang(id), why);
    } else {
      idle.emplace_back(*at, leases_.find_gang(id));
    }
  }
  std::sort(idle.begin(), idle.end());
  if (any || for_gang != 0) set_timer(next);
  node_.look_outside();
  Ledger then = node_.ledger;
  LeaseGang* first = nullptr;
  for (const auto& [at, gang] : idle) {
    if (fits(then)) break;
    then.place(gang->sessions, Ledger::Place::kAway);
    if (first == nullptr) first = gang;
  }
  if (first != nullptr && fits(then)) begin_leave(*first);
}

/// When the gang will have been idle for long enough; empty: it is at work, or not to be
/// checkpointed.
std::optional<std::chrono::nanoseconds> Checkpoints::may_leave_at(const LeaseGang& gang) const {
  const policy::Gang* state = leases_.state_of(gang.id);
  if ((gang.job->flags & wire::kJobCheckpoint) == 0 || state == nullptr) return std::nullopt;
  if (state->absence != policy::Absence::kHere || state->wants || state->exiting) {
    return std::nullopt;
  }
  const bool at_work = state->holds_lease() &&
                       (state->phase != policy::Phase::kRunning || !state->idle || !state->in_gap);
  if (at_work) return std::nullopt;
  const auto since = std::max(
      {gang.created, state->in_gap ? state->gap_since : gang.created, state->running_since});
  return std::max(since + node_.options.checkpoint_after, gang.not_checkpointed_before);
}

/// What is known to fail, by name; "" when nothing is.
std::string Checkpoints::refusal(const LeaseGang& gang) const {
  if (!node_.ledger.can_leave(gang.sessions)) {
    return "the host budget has no room for all of its memory: raise [host] budget";
  }
  for (const SessionKey id : gang.sessions) {
    const auto it = node_.sessions.find(id);
    if (it == node_.sessions.end()) continue;
    const Session& session = *it->second;
    const std::string who = cat("process ", session.process.pid, " ");
    if (session.client == nullptr) return who + "has no connection";
    if (!session.exclusive_reason.empty()) {
      return who + "can't be cut: " + session.exclusive_reason;
    }
    if (sessions_.is_sharing(id)) return who + "shares device memory with another process";
    for (const auto& [gpu, memory] : session.memory) {
      const auto has = [&kinds = memory.kinds](wire::MemoryKind kind) {
        return kinds[static_cast<std::size_t>(kind)] != 0;
      };
      if (has(wire::MemoryKind::kManaged)) return who + "has managed memory";
      if (has(wire::MemoryKind::kIpc)) return who + "has imported memory";
      if (has(wire::MemoryKind::kVmm) || has(wire::MemoryKind::kOther)) {
        return who + "has handles of the driver's (imported, multicast, external)";
      }
      if (has(wire::MemoryKind::kPool)) return who + "has a pool of the driver's";
      if (!memory.pageable) continue;
      for (const auto& kind : memory.pageable->kinds) {
        if (kind.pinned_bytes != 0) {
          return who + "has pinned memory: " + field_text(memory.pageable->pinned_reason);
        }
      }
    }
  }
  return "";
}

}  // namespace plexrl::nodemgr
