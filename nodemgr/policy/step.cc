#include "nodemgr/policy/step.h"

#include <algorithm>
#include <utility>

#include "nodemgr/policy/apply.h"
#include "nodemgr/policy/backoff.h"
#include "nodemgr/policy/cost.h"
#include "nodemgr/policy/eviction.h"
#include "nodemgr/policy/order.h"
#include "nodemgr/policy/prefetch.h"
#include "nodemgr/policy/share.h"
#include "nodemgr/policy/withdrawal.h"

namespace plexrl::nodemgr::policy {
namespace {

/// Evicted at least when the driver refuses what the figures allow: two of the largest chunks.
constexpr std::int64_t kLeastRelief = 64 << 20;
/// A load that the driver refuses for so many times the patience, with nobody to evict, ends.
constexpr int kMostRefused = 2;
constexpr const char* kContextsLeave = "its contexts are to leave the GPU";
constexpr const char* kAsksForMore = "asks for more GPUs than it holds";
constexpr const char* kWaitsForSlot = "waits for a slot over several nodes";
constexpr const char* kWaitsForParts = "waits for its parts on other nodes";
constexpr const char* kContextsAway = "its contexts are checkpointed, and others have their room";

struct Planner {
  State& state;
  Instant now;
  std::uint64_t seed;
  StepResult& result;
  GpuMask claimed = 0;  ///< kept for a waiter that comes earlier in the order

  void wake(Instant at) {
    if (at > now) result.wake_at = std::min(result.wake_at, at);
  }

  void wait(Gang& waiter, GangId other, const std::string& reason, std::vector<Figure> figures) {
    if (waiter.wait_reason == reason && waiter.waits_for == other) return;
    waiter.wait_reason = reason;
    waiter.waits_for = other;
    Decision decision;
    decision.kind = Decision::Kind::kWait;
    decision.gang = waiter.id;
    decision.other = other;
    decision.gpus = waiter.gpus;
    decision.reason = reason;
    decision.figures = std::move(figures);
    result.decisions.push_back(std::move(decision));
  }

  void abandon_silent_attempts() {
    for (auto& [id, gang] : state.gangs) {
      if (gang.phase != Phase::kDraining || gang.drained) continue;
      Instant deadline = gang.attempt_since + state.config.attempt_patience;
      if (now >= deadline) {
        end_attempt(state, gang, "no answer", now, seed, result.decisions);
      } else {
        wake(deadline);
      }
    }
  }

  /// A part of a job over several nodes waits while any of the others does.
  void call_in_parts() {
    for (auto& [id, gang] : state.gangs) {
      gang.release = Release::kNone;
      gang.kept = false;
      const bool is_called = gang.standing == Standing::kCalled || gang.comes_first();
      if (is_called && gang.phase == Phase::kIdle) {
        gang.phase = Phase::kWaiting;
        gang.wants = gang.called_in = true;
        gang.want_since = now;
        enter_competition(state, gang, now);
      } else if (!is_called && gang.called_in) {
        gang.wants = gang.called_in = false;
        if (gang.phase == Phase::kWaiting) gang.phase = Phase::kIdle;
      }
      if (gang.standing == Standing::kBarred && gang.phase == Phase::kWaiting) {
        wait(gang, kNoGang, kWaitsForSlot, {});
      }
    }
  }

  /// Their leases end together with those of other nodes, as told.
  void drain_parts() {
    for (auto& [id, gang] : state.gangs) {
      if (gang.standing != Standing::kWithdrawn || gang.undrained) continue;
      if (gang.phase == Phase::kLoading) forget_run(gang);
      if (gang.phase != Phase::kRunning && gang.phase != Phase::kLoading) continue;
      if (gang.exclusive) {
        gang.undrained = true;
        gang.obstacle = "it is exclusive";
      } else {
        // Others are drained already: when to try again they all decide together.
        Judgement judgement;
        judgement.reason = "slot over several nodes ends";
        withdraw(gang, gang, std::move(judgement));
      }
    }
  }

  bool others_wait_for(const Gang& holder) const {
    return std::any_of(state.gangs.begin(), state.gangs.end(), [&](const auto& entry) {
      const Gang& gang = entry.second;
      return gang.id != holder.id && gang.phase == Phase::kWaiting && !gang.is_kept_paused() &&
             (gang.gpus & holder.held) != 0;
    });
  }

  /// While nobody waits nobody is in the way.
  void name_the_hung() {
    if (state.config.hang_after <= Duration{0}) return;
    for (auto& [id, gang] : state.gangs) {
      if (!gang.holds_lease() || gang.stuck_since == Instant{0} || gang.told_hung) continue;
      if (!others_wait_for(gang)) continue;
      const Instant at = gang.stuck_since + state.config.hang_after;
      if (now < at) {
        wake(at);
        continue;
      }
      gang.told_hung = true;
      Decision decision;
      decision.kind = Decision::Kind::kHang;
      decision.gang = gang.id;
      decision.gpus = gang.held;
      decision.reason = gang.obstacle;
      decision.figures = {{"stuck_ns", static_cast<double>((now - gang.stuck_since).count())},
                          {"failed_attempts", static_cast<double>(gang.failed_attempts)}};
      result.decisions.push_back(std::move(decision));
    }
  }

  /// Of a lease that ends before it began to run nothing is accounted for.
  void forget_run(Gang& gang) const {
    gang.running_since = gang.turn_since = gang.busy_since = now;
  }

  void take_back_leases() {
    for (auto& [id, gang] : state.gangs) {
      const bool leaves = gang.absence == Absence::kLeaves || gang.absence == Absence::kAway;
      const bool kept_off = gang.holds_lease() && state.kept_for(gang.held, gang, now) != nullptr;
      // Whatever holds the others: who asks for more first gives back what it has (invariant 5).
      const bool asks_more = gang.holds_lease() && gang.wants && (gang.gpus & ~gang.held) != 0;
      const bool is_over = gang.slot_over && gang.holds_lease();
      if (!gang.gives_back && !gang.is_kept_paused() && !leaves && !kept_off && !asks_more &&
          !is_over)
        continue;
      if (gang.is_in_step() && !gang.slot_over) {
        gang.release = Release::kNow;
        continue;
      }
      // One that is partly or wholly off the GPUs has no end of loading; nor has a part of a slot
      // that is not started.
      const bool loads = (leaves || gang.slot_over) && gang.phase == Phase::kLoading;
      if (gang.exclusive || (gang.phase != Phase::kRunning && !loads)) continue;
      if (now < gang.attempt_not_before) {
        wake(gang.attempt_not_before);
      } else {
        if (loads) forget_run(gang);
        Judgement judgement;
        judgement.reason = gang.slot_over                   ? "its slot over several nodes is over"
                           : gang.gives_back                ? "lease is not in the journal"
                           : gang.absence == Absence::kAway ? kContextsAway
                           : leaves                         ? kContextsLeave
                           : kept_off                       ? kKeptAlone
                           : gang.is_kept_paused()          ? "paused"
                                                            : kAsksForMore;
        withdraw(gang, gang, std::move(judgement));
      }
    }
  }

  /// The contexts of a gang leave after all else that it has on its GPUs.
  void empty_who_leave() {
    for (auto& [id, gang] : state.gangs) {
      if (gang.absence != Absence::kLeaves || gang.holds_lease()) continue;
      for (auto& [gpu, memory] : gang.memory) {
        if (memory.taken() <= 0 || memory.leaving) continue;
        if (now < memory.evict_not_before) {
          wake(memory.evict_not_before);
        } else {
          result.decisions.push_back(empty(state, gang, gpu, kContextsLeave, now));
        }
      }
    }
  }

  /// A holder may back at any moment what it has been charged for.
  void make_room_for_holders() {
    for (auto& [id, gang] : state.gangs) {
      if (gang.phase != Phase::kLoading && gang.phase != Phase::kRunning) continue;
      const bool loads = gang.phase == Phase::kLoading;
      std::int64_t missing_in_all = 0;
      bool coming = false;
      bool hopeless = false;
      for (auto& [gpu, memory] : gang.memory) {
        if ((gang.held & gpu_bit(gpu)) == 0) continue;
        missing_in_all += memory.missing();
        Instant deadline = kNever;
        const Room room = make_room(state, gang, gpu, memory.lacking(),
                                    loads ? "newcomer lacks room" : "holder grows", now,
                                    result.decisions, deadline);
        coming |= room == Room::kLeaving || room == Room::kComing;
        hopeless |= room == Room::kNone;
        if (deadline != kNever) wake(deadline);
      }
      // While others are leaving, the driver has reason to refuse.
      if (coming) gang.load_progress = now;
      const bool has_no_room = loads && hopeless && !coming && !gang.exclusive;
      const bool is_stuck = (loads && missing_in_all > 0) || gang.lacks_memory;
      if (is_stuck && !has_no_room) push_stuck_load(gang);
      // The driver's own memory of others may have grown without our figures (a module of theirs
      // was loaded): then only they can give it back, and for that they have to run.
      const bool is_refused = gang.refused_since != Instant{0} &&
                              now - gang.refused_since >= kMostRefused * state.config.load_patience;
      if (has_no_room || (loads && is_refused && !gang.exclusive)) {
        // What it was granted the lease for is kept by somebody: let others have the GPU meanwhile.
        Judgement judgement;
        judgement.reason = "no room";
        judgement.figures = {{"missing_bytes", static_cast<double>(missing_in_all)}};
        forget_run(gang);
        withdraw(gang, gang, std::move(judgement));
        continue;
      }
      // What it lacks is not pageable memory (a context, a module): once is enough, it says it
      // again.
      if (missing_in_all == 0) gang.lacks_memory = false;
    }
  }

  /// Driver-owned memory grew beyond what was free: pageable bytes of idle gangs make room.
  void relieve_overfull_gpus() {
    for (const auto& [gpu, info] : state.gpus) {
      if (state.free_bytes(gpu) >= 0) continue;
      Instant deadline = kNever;
      make_room(state, Gang{}, gpu, 1, "GPU is overfull", now, result.decisions, deadline);
      if (deadline != kNever) wake(deadline);
    }
  }

  bool is_getting_free(int gpu) const {
    const auto info = state.gpus.find(gpu);
    if (info != state.gpus.end() && info->second.departing != 0) return true;
    return std::any_of(state.gangs.begin(), state.gangs.end(), [&](const auto& entry) {
      const auto memory = entry.second.memory.find(gpu);
      return memory != entry.second.memory.end() && memory->second.evict_asked != 0;
    });
  }

  /// The driver may refuse memory that the figures call free: evict more than they ask for.
  void push_stuck_load(Gang& gang) {
    Instant stuck_at = gang.load_progress + state.config.load_patience;
    if (now < stuck_at) {
      wake(stuck_at);
      return;
    }
    bool others_leave = false;
    for (auto& [gpu, memory] : gang.memory) {
      if ((gang.held & gpu_bit(gpu)) == 0) continue;
      if (memory.missing() == 0 && !gang.lacks_memory) continue;
      others_leave |= is_getting_free(gpu);
      if (next_victim(state, gpu, gang, now) == nullptr) continue;
      others_leave = true;
      std::int64_t more = std::max(memory.missing(), kLeastRelief);
      std::int64_t beyond = std::max<std::int64_t>(0, state.free_bytes(gpu)) + more;
      Instant deadline = kNever;
      make_room(state, gang, gpu, beyond, "load makes no progress", now, result.decisions,
                deadline);
    }
    if (others_leave || !gang.lacks_memory) {
      gang.refused_since = Instant{0};
    } else if (gang.refused_since == Instant{0}) {
      gang.refused_since = now;
    }
    gang.load_progress = now;
    wake(now + state.config.load_patience);
  }

  void grant(Gang& gang) {
    std::int64_t missing = 0;
    std::int64_t leaving = 0;
    for (const auto& [gpu, memory] : gang.memory) {
      if ((gang.gpus & gpu_bit(gpu)) == 0) continue;
      missing += memory.missing();
      leaving += std::max<std::int64_t>(0, memory.lacking() - state.free_bytes(gpu));
    }
    Decision decision;
    decision.kind = Decision::Kind::kGrant;
    decision.gang = gang.id;
    decision.gpus = gang.gpus;
    decision.run_now = missing == 0 && gang.standing != Standing::kLeased;
    decision.reason = gang.exiting ? "exiting" : now >= urgent_at(state, gang) ? "bound" : "turn";
    decision.figures = {{"waited_ns", static_cast<double>((now - gang.want_since).count())},
                        {"load_bytes", static_cast<double>(missing)},
                        {"leaving_bytes", static_cast<double>(leaving)},
                        {"load_cost_ns", static_cast<double>(load_cost(state, gang).count())},
                        {"priority", static_cast<double>(gang.priority)},
                        {"response_ratio", response_ratio(state, gang, now)},
                        {"slowdown_ratio", slowdown(gang, now)}};
    const bool run_now = decision.run_now;
    result.decisions.push_back(std::move(decision));
    gang.waited += now - gang.want_since;
    gang.granted_late = now >= urgent_at(state, gang);
    gang.held = gang.gpus;
    gang.wants = gang.called_in = false;
    gang.reserved = false;
    gang.wait_reason.clear();
    gang.waits_for = kNoGang;
    load(gang, now);
    if (run_now) run(gang, now);
    if (missing != 0) wake(now + state.config.load_patience);
  }

  void advance_reservation(Gang& gang) {
    bool coming = false;
    bool departing = false;
    for (auto& [gpu, memory] : gang.memory) {
      if ((gang.gpus & gpu_bit(gpu)) == 0) continue;
      Instant deadline = kNever;
      Room room = make_room(state, gang, gpu, memory.lacking(), "newcomer lacks room", now,
                            result.decisions, deadline);
      if (deadline != kNever) wake(deadline);
      if (room == Room::kNone) {
        // Somebody keeps bytes that were promised to move: let others have the GPU meanwhile.
        gang.reserved = false;
        gang.not_before = now + backoff(state.config.load_patience, state.config.backoff_cap, 1,
                                        seed ^ static_cast<std::uint64_t>(gang.id));
        claimed &= ~gang.gpus;
        wake(gang.not_before);
        wait(gang, kNoGang, "no room on GPU " + std::to_string(gpu),
             {{"needed_bytes", static_cast<double>(memory.lacking())},
              {"free_bytes", static_cast<double>(state.free_bytes(gpu))}});
        return;
      }
      // What living gangs are giving up is loaded into as it becomes free: out and in at once.
      coming |= room == Room::kComing;
      auto info = state.gpus.find(gpu);
      departing |= room == Room::kComing && info != state.gpus.end() && info->second.departing > 0;
    }
    if (!coming && gang.standing == Standing::kTaken) {
      gang.kept = true;
      wait(gang, kNoGang, kWaitsForParts, {});
    } else if (!coming) {
      grant(gang);
    } else {
      wait(gang, kNoGang,
           departing ? "memory of ended processes is not free yet" : "others are evicted", {});
    }
  }

  void withdraw(Gang& holder, const Gang& waiter, Judgement judgement) {
    holder.phase = Phase::kDraining;
    holder.attempt_since = now;
    Decision decision;
    decision.kind = Decision::Kind::kWithdraw;
    decision.gang = holder.id;
    decision.other = waiter.id;
    decision.gpus = holder.held;
    decision.attempt = ++holder.attempt;
    decision.reason = std::move(judgement.reason);
    decision.figures = std::move(judgement.figures);
    result.decisions.push_back(std::move(decision));
    wake(now + state.config.attempt_patience);
  }

  /// Gangs whose lease or reservation covers a GPU that `waiter` needs.
  std::vector<Gang*> blockers_of(const Gang& waiter) {
    std::vector<Gang*> blockers;
    for (auto& [id, gang] : state.gangs) {
      GpuMask has = gang.holds_lease() ? gang.held : gang.reserved ? gang.gpus : 0;
      bool self = &gang == &waiter;
      if (self ? gang.holds_lease() : (has & waiter.gpus) != 0) blockers.push_back(&gang);
    }
    return blockers;
  }

  void consider(Gang& waiter) {
    if (waiter.gpus == 0) return;
    for (const auto& [index, gpu] : state.gpus) {
      if (gpu.frozen && (waiter.gpus & gpu_bit(index)) != 0) {
        return wait(waiter, kNoGang, "waits for processes of the manager before", {});
      }
    }
    if (const Gang* const owner = state.kept_for(waiter.gpus, waiter, now)) {
      waiter.reserved = false;
      wake(owner->alone_until);
      return wait(waiter, owner->id, kKeptAlone,
                  {{"alone_ns", static_cast<double>((owner->alone_until - now).count())}});
    }
    if (waiter.absence == Absence::kLeaves) {
      return wait(waiter, kNoGang, "its contexts are leaving the GPU", {});
    }
    if (waiter.absence == Absence::kAway) {
      return wait(waiter, kNoGang, kContextsAway, {});
    }
    // A lease opens gates, and while memory leaves all gates of its gang are closed (invariant 3).
    for (const auto& [gpu, memory] : waiter.memory) {
      if (memory.leaving) return wait(waiter, kNoGang, "its own memory is still leaving", {});
    }
    if (waiter.reserved) {
      claimed |= waiter.gpus;
      return advance_reservation(waiter);
    }
    if ((waiter.gpus & claimed) != 0) return wait(waiter, kNoGang, "others come first", {});
    if (now < waiter.not_before) return wake(waiter.not_before);

    std::vector<Gang*> blockers = blockers_of(waiter);
    // Gangs of this node that have come since only fill the time until the other parts can begin.
    const bool others_slot = std::any_of(blockers.begin(), blockers.end(),
                                         [](const Gang* gang) { return gang->is_in_step(); });
    if (waiter.turn && !others_slot) return;
    waiter.turn = false;
    if (blockers.empty() && waiter.standing == Standing::kCalled) return is_its_turn(waiter);
    if (blockers.empty()) {
      waiter.reserved = true;
      claimed |= waiter.gpus;
      return advance_reservation(waiter);
    }
    displace(waiter, blockers);
  }

  void is_its_turn(Gang& part) {
    part.turn = true;
    wait(part, kNoGang, kWaitsForParts, {});
  }

  /// Some holders are parts of jobs over several nodes: the others go on until these are told to
  /// drain.
  bool ask_for_release(const std::vector<Gang*>& blockers,
                       const std::vector<Judgement>& judgements) {
    bool has_asked = false;
    for (std::size_t i = 0; i < blockers.size(); ++i) {
      Gang& gang = *blockers[i];
      if (gang.phase != Phase::kRunning || !gang.is_in_step()) continue;
      const bool in_gap = judgements[i].reason == kHolderIdle;
      gang.release = std::max(gang.release, in_gap ? Release::kInGap : Release::kNow);
      has_asked = true;
    }
    return has_asked;
  }

  /// All blockers are withdrawn together, or none: a lease over several GPUs comes all at once.
  void displace(Gang& waiter, const std::vector<Gang*>& blockers) {
    std::vector<Judgement> judgements;
    Instant all_at = now;
    std::size_t last = 0;
    GpuMask busy = 0;
    for (Gang* blocker : blockers) {
      busy |= blocker->holds_lease() ? blocker->held : blocker->gpus;
      Judgement judgement;
      if (blocker->phase == Phase::kDraining) {
        judgement.at = now;
      } else if (blocker->phase == Phase::kWaiting) {
        judgement.reason = "reserved for another";
      } else {
        judgement = judge_withdrawal(state, *blocker, waiter, now);
      }
      if (judgement.at > all_at) {
        all_at = judgement.at;
        last = judgements.size();
      }
      judgements.push_back(std::move(judgement));
    }
    if (all_at <= now && waiter.standing == Standing::kCalled) return is_its_turn(waiter);
    if (all_at <= now) {
      claimed |= waiter.gpus;
      if (ask_for_release(blockers, judgements)) {
        return wait(waiter, blockers.front()->id, "holder's slot over several nodes ends", {});
      }
      for (std::size_t i = 0; i < blockers.size(); ++i) {
        if (blockers[i]->phase == Phase::kRunning) {
          withdraw(*blockers[i], waiter, std::move(judgements[i]));
        }
      }
      return wait(waiter, blockers.front()->id, "holder drains", {});
    }
    if (all_at != kNever) wake(all_at);
    // Busy GPUs go to the first in order; free ones may be used meanwhile, until the wait is half
    // way to urgent: then they are kept, or small gangs would starve large ones.
    if (waiter.standing == Standing::kCalled) {
      return wait(waiter, blockers[last]->id, "holder runs until: " + judgements[last].reason,
                  judgements[last].figures);
    }
    bool cuttable = all_at != kNever || blockers[last]->phase != Phase::kRunning;
    Instant keep_from = waiter.want_since + (urgent_at(state, waiter) - waiter.want_since) / 2;
    claimed |= waiter.gpus & busy;
    if (waiter.comes_first() || (cuttable && now >= keep_from)) {
      claimed |= waiter.gpus;
    } else if (cuttable) {
      wake(keep_from);
    }
    const std::string& reason = judgements[last].reason;
    wait(waiter, blockers[last]->id, all_at == kNever ? reason : "holder runs until: " + reason,
         judgements[last].figures);
  }
};

}  // namespace

StepResult step(State& state, std::span<const Event> events, Instant now, std::uint64_t seed) {
  StepResult result;
  for (const Event& event : events) apply(state, event, now, seed, result.decisions);
  Planner planner{state, now, seed, result};
  planner.call_in_parts();
  planner.abandon_silent_attempts();
  planner.drain_parts();
  planner.name_the_hung();
  planner.take_back_leases();
  planner.empty_who_leave();
  planner.make_room_for_holders();
  planner.relieve_overfull_gpus();
  std::vector<Gang*> waiters = waiting_in_order(state, now);
  for (Gang* waiter : waiters) planner.consider(*waiter);
  prefetch(state, now, result.decisions, result.wake_at);
  // The order changes when a wait becomes urgent.
  for (Gang* waiter : waiters) planner.wake(urgent_at(state, *waiter));
  return result;
}

}  // namespace plexrl::nodemgr::policy
