#include "nodemgr/leases.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "nodemgr/clock.h"
#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr wire::Epoch kNoEpoch{};

std::chrono::nanoseconds from_wire(std::uint64_t ns) {
  constexpr std::uint64_t kMax = std::uint64_t{1} << 62;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(ns, kMax)));
}

std::chrono::nanoseconds not_after(std::chrono::nanoseconds now, std::uint64_t ns) {
  return std::min(now, from_wire(ns));
}

/// Of a figure that a process tells.
std::int64_t in_bounds(std::uint64_t bytes) {
  return static_cast<std::int64_t>(std::min(bytes, std::uint64_t{1} << 50));
}

/// Its lease begins or ends, or its memory comes or goes without one.
bool moves(const policy::Gang& gang) {
  if (gang.phase == policy::Phase::kDraining || gang.phase == policy::Phase::kLoading) return true;
  return std::any_of(gang.memory.begin(), gang.memory.end(), [](const auto& entry) {
    return entry.second.coming != 0 || entry.second.leaving;
  });
}

SwitchLog::Who who(const LeaseGang& gang) {
  return {id_text(gang.job->id), static_cast<std::uint64_t>(gang.id)};
}

}  // namespace

Leases::Leases(Node& node) : node_(node), switches_(*node.trace), paging_(*node.trace, switches_) {}

void LeaseGang::take_over(int gpu, const Eviction& from) {
  if (from.since == std::chrono::nanoseconds{0}) return;
  Eviction& own = evictions[gpu];
  own.since =
      own.since == std::chrono::nanoseconds{0} ? from.since : std::min(own.since, from.since);
  own.awaiting.insert(from.awaiting.begin(), from.awaiting.end());
  own.failed |= from.failed;
  own.moved += from.moved;
  own.saved += from.saved;
}

const char* state_name(const policy::Gang& gang) {
  const bool paused = gang.is_kept_paused() && !gang.holds_lease();
  return paused ? policy::kPausedName : policy::phase_name(gang.phase);
}

LeaseGang* Leases::find(policy::GangId id) {
  auto it = gangs_.find(static_cast<std::uint64_t>(id));
  return it == gangs_.end() ? nullptr : &it->second;
}

LeaseGang* Leases::gang_of(const Session& session) { return find(policy::GangId{session.gang}); }

LeaseGang& Leases::create(Job& job) {
  std::uint64_t id = node_.next_key++;
  LeaseGang& gang = gangs_[id];
  gang.id = policy::GangId{id};
  gang.created = boot_now();
  gang.job = &job;
  return gang;
}

void Leases::describe(const LeaseGang& gang) {
  policy::GangChanged event;
  event.gang = gang.id;
  event.job = id_text(gang.job->id);
  event.priority = gang.job->priority;
  event.max_wait = gang.job->max_wait;
  event.gpus = gang.gpus;
  event.team = gang.job->team;
  event.max_slowdown = gang.job->max_slowdown;
  event.paused = gang.job->paused;
  event.alone_until = gang.job->alone_until;
  each(gang, [&](Session& session) { event.exclusive |= !session.exclusive_reason.empty(); });
  events_.push_back(std::move(event));
  // What it has shown itself counts from then on.
  const policy::Gang* const state = state_of(gang.id);
  if (state != nullptr && state->gaps_shown != 0) return;
  const policy::GapProfile* const known = find_gaps(gang.job->gaps_known, gang.gpus);
  if (known != nullptr) events_.push_back(policy::GangRemembered{gang.id, *known});
}

void Leases::note_gaps(LeaseGang& gang) {
  const policy::Gang* state = state_of(gang.id);
  if (state == nullptr || state->gaps_shown == gang.gaps_noted) return;
  gang.gaps_noted = state->gaps_shown;
  gang.job->gaps_seen[gang.gpus] = state->profile;
  gang.job->gaps_are_kept = false;
}

void Leases::note_gaps() {
  for (auto& [id, gang] : gangs_) note_gaps(gang);
}

void Leases::memory_event(const LeaseGang& gang, int gpu) {
  const std::uint64_t bit = std::uint64_t{1} << gpu;
  const std::uint64_t crowded = node_.ledger.holds_promises(gpu) ? 0 : bit;
  if (crowded == (crowded_ & bit)) return tell_memory(gang, gpu);
  crowded_ ^= bit;
  tell_memory(gang, gpu);
  for (const auto& [id, other] : gangs_) {
    if (&other != &gang && (other.gpus & bit) != 0) tell_memory(other, gpu);
  }
}

void Leases::tell_memory(const LeaseGang& gang, int gpu) {
  policy::MemoryChanged event;
  event.gang = gang.id;
  event.gpu = gpu;
  each(gang, [&](Session& session) {
    auto it = session.memory.find(gpu);
    if (it == session.memory.end()) return;
    std::uint64_t pageable = node_.ledger.pageable(session.id, gpu);
    it->second.resident = std::min(it->second.resident, pageable);
    event.pageable_bytes += static_cast<std::int64_t>(pageable);
    event.resident_bytes += static_cast<std::int64_t>(it->second.resident);
    event.coming_bytes += static_cast<std::int64_t>(it->second.coming);
    // What is checkpointed needs room with the next lease, as what has been evicted does.
    std::int64_t& rest = session.away ? event.pageable_bytes : event.fixed_bytes;
    rest += static_cast<std::int64_t>(node_.ledger.unpageable(session.id, gpu) +
                                      node_.room_of(session, gpu));
  });
  events_.push_back(event);
}

void Leases::memory_changed(const Session& session, int gpu) {
  if (const LeaseGang* gang = gang_of(session)) memory_event(*gang, gpu);
}

void Leases::gpu_changed(int gpu) {
  bool frozen = (frozen_ >> gpu & 1) != 0;
  const NodeGpu& its = node_.gpus.at(gpu);
  events_.push_back(policy::GpuChanged{gpu, static_cast<std::int64_t>(its.usable), frozen,
                                       static_cast<std::int64_t>(its.departing())});
}

void Leases::job_changed(const Job& job) {
  for (const auto& [id, gang] : gangs_) {
    if (gang.job == &job) describe(gang);
  }
}

void Leases::set_weights(const std::map<std::string, double>& weights) {
  for (const auto& [team, weight] : weights) {
    events_.push_back(policy::TeamChanged{team, weight});
  }
}

void Leases::attach(Session& session, int gpu) {
  std::uint64_t bit = std::uint64_t{1} << gpu;
  LeaseGang* own = gang_of(session);
  LeaseGang* there = nullptr;
  for (auto& [id, gang] : gangs_) {
    if (gang.job == session.job && (gang.gpus & bit) != 0) there = &gang;
  }
  if (own != nullptr && there != nullptr && own != there) {
    merge(*there, *own);
  } else if (own == nullptr) {
    own = there != nullptr ? there : &create(*session.job);
    own->sessions.insert(session.id);
    session.gang = static_cast<std::uint64_t>(own->id);
    trace_gang_of(session);
  }
  LeaseGang& gang = *gang_of(session);
  bool grew = (gang.gpus & bit) == 0;
  gang.gpus |= bit;
  describe(gang);
  if (session.exiting || session.job->exiting) events_.push_back(policy::GangExiting{gang.id});
  memory_event(gang, gpu);
  // A lease that does not cover all GPUs is given back and asked for again, over all.
  if (grew && gang.epoch != kNoEpoch) {
    events_.push_back(policy::WantsChanged{gang.id, true, boot_now()});
  }
  joined(session);
}

void Leases::leave(Session& session) {
  LeaseGang* gang = gang_of(session);
  paging_.died(session, boot_now());
  session.gang = 0;
  if (gang == nullptr) return;
  gang->sessions.erase(session.id);
  if (gang->sessions.empty()) {
    note_gaps(*gang);
    events_.push_back(policy::GangGone{gang->id});
    if (gang->epoch != kNoEpoch) switches_.revoked(who(*gang), gang->gpus, boot_now());
    switches_.gone(who(*gang), boot_now());
    trace_state(*gang, "gone", "all processes have ended");
    gangs_.erase(static_cast<std::uint64_t>(gang->id));
    return;
  }
  for (const auto& [gpu, memory] : session.memory) memory_event(*gang, gpu);
  std::uint64_t gpus = 0;
  each(*gang, [&](Session& other) {
    for (const auto& [gpu, memory] : other.memory) gpus |= std::uint64_t{1} << gpu;
  });
  // A lease keeps its GPUs to its end; without one the gang shrinks to what is still used.
  if (gang->epoch == kNoEpoch) gang->gpus = gpus;
  describe(*gang);
  update_wants(*gang);
  update_activity(*gang, boot_now());
  check_drained(*gang);
  check_loaded(*gang);
  for (auto& [gpu, eviction] : gang->evictions) {
    eviction.awaiting.erase(session.id);
    check_eviction(*gang, gpu);
  }
}

void Leases::lost(Session& session) {
  LeaseGang* gang = gang_of(session);
  if (gang == nullptr) return;
  paging_.lost(session, boot_now());
  session.wants = false;  // it asks again when it is back
  update_wants(*gang);
  for (auto& [gpu, memory] : session.memory) {
    if (std::exchange(memory.coming, 0) != 0) memory_event(*gang, gpu);
  }
  for (auto& [gpu, eviction] : gang->evictions) {
    if (eviction.awaiting.erase(session.id) != 0) eviction.failed = true;
    check_eviction(*gang, gpu);
  }
  check_drained(*gang);
  check_loaded(*gang);
}

void Leases::joined(Session& session) {
  LeaseGang* gang = gang_of(session);
  if (gang == nullptr || session.client == nullptr || session.awaited) return;
  const policy::Gang* state = state_.find(gang->id);
  if (state == nullptr || gang->epoch == kNoEpoch || session.granted == gang->epoch) return;
  if (state->phase == policy::Phase::kDraining || !state->holds_lease()) return;
  if (session.off_gpu) return;  // until it is back
  bool missing = false;
  for (const auto& [gpu, memory] : session.memory) {
    missing |= node_.ledger.pageable(session.id, gpu) > memory.resident;
  }
  journal_grant(*gang);
  send_grant(*gang, session, !missing && !gang->loading);
}

void Leases::update_wants(LeaseGang& gang) {
  bool wants = false;
  auto since = std::chrono::nanoseconds::max();
  each(gang, [&](Session& session) {
    if (!session.wants) return;
    wants = true;
    since = std::min(since, session.want_since);
  });
  events_.push_back(
      policy::WantsChanged{gang.id, wants, wants ? since : std::chrono::nanoseconds{0}});
}

void Leases::remember_want(Session& session, const wire::WantLease& want) {
  const auto now = boot_now();
  session.wants = true;
  session.want_since = want.since_ns == 0 ? now : std::min(now, from_wire(want.since_ns));
}

void Leases::on_want(Session& session, const wire::WantLease& want) {
  LeaseGang* gang = gang_of(session);
  if (gang == nullptr) return;
  const policy::Gang* state = state_.find(gang->id);
  bool covered = state != nullptr && state->holds_lease() && (gang->gpus & ~state->held) == 0;
  if (covered && state->phase != policy::Phase::kDraining) {
    if (session.granted == gang->epoch) {
      // With a lease and still asking: the driver refuses it memory.
      events_.push_back(policy::LacksMemory{gang->id});
    } else {
      joined(session);
      if (session.granted != gang->epoch) remember_want(session, want);
    }
    return;
  }
  remember_want(session, want);
  switches_.busy(who(*gang), session.want_since);
  node_.usage.activity(session.gang, true, session.want_since);
  if (gang->epoch == kNoEpoch && !gang->job->paused) {
    trace_state(*gang, "waiting", "a thread is at the gate");
  }
  update_wants(*gang);
}

void Leases::count_loaded(const Session& session, const wire::Loaded& loaded) {
  // One sum for all its GPUs: each has its part by what it lacked.
  auto now = boot_now();
  double lacked = 0;
  auto lack = [&](int gpu, const SessionMemory& memory) {
    std::uint64_t pageable = node_.ledger.pageable(session.id, gpu);
    return static_cast<double>(pageable - std::min(pageable, memory.resident));
  };
  for (const auto& [gpu, memory] : session.memory) lacked += lack(gpu, memory);
  auto bytes = static_cast<double>(std::min(loaded.moved_bytes, 1ul << 50));
  for (const auto& [gpu, memory] : session.memory) {
    double part =
        lacked > 0 ? lack(gpu, memory) / lacked : 1.0 / static_cast<double>(session.memory.size());
    node_.usage.moved_in(gpu, static_cast<std::uint64_t>(bytes * part),
                         not_after(now, loaded.start_ns), not_after(now, loaded.end_ns));
  }
}

void Leases::on_loaded(Session& session, const wire::Loaded& loaded) {
  LeaseGang* gang = gang_of(session);
  if (gang == nullptr || loaded.epoch != session.granted) return;
  paging_.loaded(session, loaded, gang->gpus, boot_now());
  const wire::Paged more = std::exchange(session.paged[1], {});
  const wire::DiskPaged disk = std::exchange(session.disk_paged[1], {});
  if (session.loaded) return;
  session.loaded = true;
  count_loaded(session, loaded);
  for (auto& [gpu, memory] : session.memory) {
    memory.resident = node_.ledger.pageable(session.id, gpu);
    memory.host = memory.disk = 0;
    memory_event(*gang, gpu);
  }
  switches_.loaded(gang->gpus, loaded, more, disk);
  gang->loaded_bytes += in_bounds(loaded.moved_bytes);
  gang->load_saved += in_bounds(loaded.zero_bytes) + in_bounds(more.repeated_bytes);
  gang->load_blocked = std::max(gang->load_blocked, from_wire(loaded.blocked_ns));
  if (gang->loading) {
    check_loaded(*gang);
  } else if (gang->epoch == session.granted && session.client != nullptr) {
    session.client->send(wire::Type::kRun, 0, wire::LeaseRef{gang->epoch});  // it came later
  }
}

void Leases::check_loaded(LeaseGang& gang) {
  if (!gang.loading || is_held_back(gang)) return;
  bool all = true;
  each(gang, [&](Session& session) {
    if (session.granted == gang.epoch && session.client != nullptr) all &= session.loaded;
  });
  if (!all) return;
  // What its rate is learned from is the time without that of waiting for room.
  const auto took = boot_now() - gang.grant_sent;
  events_.push_back(policy::GangLoaded{gang.id, gang.loaded_bytes,
                                       took - std::min(took, gang.load_blocked), gang.load_saved});
}

void Leases::on_drained(Session& session, const wire::Drained& drained) {
  LeaseGang* gang = gang_of(session);
  if (gang == nullptr || drained.epoch != gang->epoch || drained.attempt != gang->attempt) return;
  session.drained = true;
  check_drained(*gang);
}

void Leases::on_not_drained(Session& session, const wire::NotDrained& not_drained) {
  LeaseGang* gang = gang_of(session);
  if (gang == nullptr || not_drained.epoch != gang->epoch) return;
  if (not_drained.attempt != gang->attempt) return;
  std::string obstacle = field_text(not_drained.obstacle);
  node_.trace->add(TraceError{id_text(gang->job->id), session.id, "not_drained", obstacle});
  events_.push_back(policy::GangNotDrained{gang->id, gang->attempt, obstacle});
}

void Leases::check_drained(LeaseGang& gang) {
  if (gang.attempt == 0 || gang.epoch == kNoEpoch) return;
  bool all = true;
  std::string silent;
  each(gang, [&](Session& session) {
    if (session.granted != gang.epoch) return;
    // Without a connection it may have opened its gate again, whatever it said before.
    if (session.drained && session.client != nullptr) return;
    all = false;
    if (session.client == nullptr)
      silent = cat("process ", session.process.pid, " has no connection");
  });
  if (all) {
    events_.push_back(policy::GangDrained{gang.id, gang.attempt});
  } else if (!silent.empty()) {
    events_.push_back(policy::GangNotDrained{gang.id, gang.attempt, silent});
  }
}

void Leases::on_evicted(Session& session, const wire::Evicted& evicted) {
  LeaseGang* gang = gang_of(session);
  int gpu = static_cast<int>(evicted.gpu);
  auto memory = session.memory.find(gpu);
  if (gang == nullptr || memory == session.memory.end()) return;
  // Who could not begin at all may not have looked what it has.
  bool untold = evicted.failed != 0 && evicted.resident_bytes == 0;
  std::uint64_t before = memory->second.resident;
  memory->second.resident =
      untold ? before - std::min(before, evicted.freed_bytes) : evicted.resident_bytes;
  std::uint64_t in_host = evicted.moved_bytes + session.paged[0].unchanged_bytes;
  const std::uint64_t on_disk = std::min(in_host, session.disk_paged[0].bytes);
  in_host -= on_disk;
  memory->second.host += std::min(in_host, before);  // until its next report
  memory->second.disk += std::min(on_disk, before);
  memory_event(*gang, gpu);
  auto now = boot_now();
  paging_.evicted(session, evicted, now);
  session.paged[0] = {};
  session.disk_paged[0] = {};
  node_.usage.moved_out(gpu, evicted.moved_bytes, not_after(now, evicted.start_ns),
                        not_after(now, evicted.end_ns));
  auto eviction = gang->evictions.find(gpu);
  if (eviction == gang->evictions.end() || eviction->second.awaiting.erase(session.id) == 0) return;
  eviction->second.moved += in_bounds(evicted.moved_bytes);
  eviction->second.saved +=
      in_bounds(evicted.freed_bytes - std::min(evicted.freed_bytes, evicted.moved_bytes));
  if (evicted.failed != 0) {
    eviction->second.failed = true;
    node_.trace->add(TraceError{id_text(gang->job->id), session.id, "evict_failed",
                                "some chunks could not leave"});
  }
  check_eviction(*gang, gpu);
}

void Leases::on_prefetched(Session& session, const wire::Prefetched& prefetched) {
  LeaseGang* gang = gang_of(session);
  const int gpu = static_cast<int>(prefetched.gpu);
  auto memory = session.memory.find(gpu);
  if (gang == nullptr || memory == session.memory.end()) return;
  memory->second.coming = 0;
  memory->second.resident = prefetched.resident_bytes;
  memory_event(*gang, gpu);
  const auto now = boot_now();
  paging_.prefetched(session, prefetched, now);
  node_.usage.moved_in(gpu, prefetched.moved_bytes, not_after(now, prefetched.start_ns),
                       not_after(now, prefetched.end_ns));
}

void Leases::check_eviction(LeaseGang& gang, int gpu) {
  LeaseGang::Eviction& eviction = gang.evictions[gpu];
  if (!eviction.awaiting.empty() || eviction.since == std::chrono::nanoseconds{0}) return;
  events_.push_back(policy::GangEvicted{gang.id, gpu, eviction.failed, eviction.moved,
                                        boot_now() - eviction.since, eviction.saved});
  eviction = LeaseGang::Eviction{};
}

void Leases::on_activity(Session& session, const wire::Activity& activity) {
  LeaseGang* gang = gang_of(session);
  if (gang == nullptr || activity.count == 0) return;
  bool last_is_busy = (activity.count % 2 == 1) == (activity.first_is_busy != 0);
  session.busy = last_is_busy;
  session.edge = std::min(boot_now(), from_wire(activity.at_ns[activity.count - 1]));
  update_activity(*gang, session.edge);
}

void Leases::trace_open_gaps() { switches_.tell_open_gaps(boot_now()); }

void Leases::set_absence(std::uint64_t id, policy::Absence absence) {
  LeaseGang* gang = find_gang(id);
  if (gang == nullptr) return;
  events_.push_back(policy::GangAbsent{gang->id, absence});
  for (const auto& [gpu, info] : node_.gpus) {
    if ((gang->gpus >> gpu & 1) != 0) memory_event(*gang, gpu);
  }
}

void Leases::read_activity_pages() {
  auto now = boot_now();
  for (auto& [id, gang] : gangs_) {
    const policy::Gang* state = state_.find(gang.id);
    if (state == nullptr || state->phase != policy::Phase::kRunning) continue;
    bool changed = false;
    std::uint64_t submitted = 0;
    auto at = std::chrono::nanoseconds{0};
    each(gang, [&](Session& session) {
      const auto* page = static_cast<wire::ActivityPage*>(session.activity.data());
      if (page == nullptr || page->magic != wire::kMagic) return;
      auto read = [](const std::uint64_t& word) {
        return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(word))
            .load(std::memory_order_relaxed);
      };
      submitted += read(page->submitted);
      bool busy = read(page->busy) != 0 || read(page->waiting_threads) != 0;
      auto edge = std::clamp(from_wire(read(page->edge_ns)), state->running_since, now);
      // Only what is old enough: right after a grant the page still tells of the time before.
      if (busy == session.busy || now - edge < state_.config.grace) return;
      session.busy = busy;
      at = std::max(at, edge);
      changed = true;
    });
    if (changed) update_activity(gang, at);
    if (std::exchange(gang.submitted, submitted) != submitted) {
      events_.push_back(policy::GangProgressed{gang.id});
    }
  }
}

bool Leases::is_anyone_in_the_way() const {
  for (const auto& [id, gang] : state_.gangs) {
    const bool is_stuck = gang.stuck_since != policy::Instant{0};
    if (gang.phase == policy::Phase::kWaiting || is_stuck) return true;
  }
  return false;
}

void Leases::update_activity(LeaseGang& gang, std::chrono::nanoseconds at) {
  bool busy = false;
  each(gang, [&](Session& session) { busy |= session.busy; });
  events_.push_back(policy::ActivityEdge{gang.id, busy, at});
  if (busy == gang.busy) return;
  gang.busy = busy;
  node_.usage.activity(static_cast<std::uint64_t>(gang.id), busy, at);
  if (busy) {
    switches_.busy(who(gang), at);
  } else {
    switches_.idle(who(gang), at);
  }
}

void Leases::on_exclusive(Session& session, const std::string& reason) {
  session.exclusive_reason = reason.empty() ? "not named" : reason;
  LeaseGang* gang = gang_of(session);
  log_line(LogLevel::kInfo, "leases",
           cat("process can't be cut pid=", session.process.pid, " reason='",
               session.exclusive_reason, "'"));
  if (gang != nullptr) describe(*gang);
}

void Leases::on_exiting(Session& session) {
  session.exiting = true;
  if (LeaseGang* gang = gang_of(session)) events_.push_back(policy::GangExiting{gang->id});
}

std::uint64_t Leases::evicting_bytes(const Session& session) const {
  const auto gang = gangs_.find(session.gang);
  if (gang == gangs_.end()) return 0;
  std::uint64_t sum = 0;
  for (const auto& [gpu, eviction] : gang->second.evictions) {
    const auto asked = eviction.awaiting.find(session.id);
    if (asked != eviction.awaiting.end()) sum += asked->second;
  }
  return sum;
}

bool Leases::is_switching() const {
  return std::any_of(state_.gangs.begin(), state_.gangs.end(), [](const auto& entry) {
    return entry.second.reserved || moves(entry.second);
  });
}

bool Leases::moves_memory(const Session& session) const {
  const policy::Gang* const gang = state_of(policy::GangId{session.gang});
  return gang != nullptr && moves(*gang);
}

}  // namespace plexrl::nodemgr
