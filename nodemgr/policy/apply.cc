#include "nodemgr/policy/apply.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "nodemgr/policy/backoff.h"
#include "nodemgr/policy/cost.h"
#include "nodemgr/policy/share.h"

namespace plexrl::nodemgr::policy {
namespace {

/// Below this a transfer's time says more about its fixed part than about the rate.
constexpr std::int64_t kRateSampleBytes = 4 << 20;

Decision about(Decision::Kind kind, const Gang& gang, std::string reason) {
  Decision decision;
  decision.kind = kind;
  decision.gang = gang.id;
  decision.gpus = gang.held;
  decision.attempt = gang.attempt;
  decision.reason = std::move(reason);
  return decision;
}

/// Accounts for the time since the lease began to run, and the burst's part in it.
void account(State& state, Gang& gang, Instant now) {
  if (gang.phase == Phase::kLoading) return;
  gang.service += now - gang.running_since;
  charge(state, gang, now - gang.running_since, std::popcount(gang.held));
  if (!gang.idle) gang.burst_so_far += now - gang.busy_since;
}

void end_lease(State& state, Gang& gang, Instant now) {
  account(state, gang, now);
  gang.held = 0;
  gang.loaded = gang.drained = false;
  gang.lease_ended = now;
  gang.lacks_memory = false;
  gang.gives_back = false;
  gang.failed_attempts = 0;
  gang.attempt_not_before = Instant{0};
  unstick(gang);
  gang.phase = gang.wants ? Phase::kWaiting : Phase::kIdle;
}

/// The gap is over at `at`: the gang has submitted something, or wants to.
void end_gap(Gang& gang, Instant at) {
  if (!gang.in_gap) return;
  gang.in_gap = false;
  gang.profile.add(gang.burst_before, std::max(Duration{0}, at - gang.gap_since));
  ++gang.gaps_shown;
}

void begin_gap(Gang& gang, Instant at) {
  gang.burst_before = gang.burst_so_far + std::max(Duration{0}, at - gang.busy_since);
  gang.burst_so_far = Duration{0};
  gang.in_gap = true;
  gang.gap_since = at;
}

/// Of a transfer that had mostly something else to do than to copy, the time says nothing of
/// copies.
void learn_rate(double& ns_per_byte, Fastest& seen, std::int64_t bytes, std::int64_t saved_bytes,
                Duration took) {
  if (bytes < kRateSampleBytes || saved_bytes > bytes || took <= Duration{0}) return;
  const int size = static_cast<int>(seen.ns_per_byte.size());
  seen.ns_per_byte[static_cast<std::size_t>(seen.samples++ % size)] =
      static_cast<double>(took.count()) / static_cast<double>(bytes);
  const auto begin = seen.ns_per_byte.begin();
  ns_per_byte = *std::min_element(begin, begin + std::min(seen.samples, size));
}

void learn_share(double& share, std::int64_t moved_bytes, std::int64_t saved_bytes) {
  const auto all = static_cast<double>(moved_bytes) + static_cast<double>(saved_bytes);
  if (all < static_cast<double>(kRateSampleBytes)) return;
  share = (share + static_cast<double>(moved_bytes) / all) / 2;
}

struct Applier {
  State& state;
  Instant now;
  std::uint64_t seed;
  std::vector<Decision>& out;

  void operator()(const GpuChanged& e) {
    Gpu& gpu = state.gpus[e.gpu];
    gpu.usable = e.usable_bytes;
    gpu.frozen = e.frozen;
    gpu.departing = e.departing_bytes;
  }

  void operator()(const TeamChanged& e) {
    if (e.weight > 0) state.teams[e.team].weight = e.weight;
  }

  void operator()(const GangChanged& e) {
    Gang& gang = state.gangs[e.gang];
    if (gang.id == kNoGang && e.spans) gang.standing = Standing::kBarred;
    gang.id = e.gang;
    gang.job = e.job;
    gang.team = e.team;
    gang.max_slowdown = e.max_slowdown;
    state.teams.try_emplace(e.team);
    state.jobs.try_emplace(e.job);
    gang.priority = e.priority;
    gang.max_wait = e.max_wait;
    if (gang.gpus != e.gpus) gang.reserved = false;  // it was for the GPUs of before
    gang.gpus = e.gpus;
    gang.exclusive = e.exclusive;
    set_paused(state, gang, e.paused, now);
    gang.alone_until = e.alone_until;
  }

  void operator()(const GangAdopted& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr) return;
    gang->held = e.held;
    gang->wants = false;
    gang->gives_back = e.unproven;
    run(*gang, now);
  }

  void operator()(const GangRemembered& e) {
    Gang* gang = state.find(e.gang);
    if (gang != nullptr && gang->gaps_shown == 0) gang->profile = e.profile;
  }

  void operator()(const GangGone& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr) return;
    if (gang->holds_lease()) end_lease(state, *gang, now);
    const std::string job = gang->job;
    state.gangs.erase(e.gang);
    for (const auto& [id, other] : state.gangs) {
      if (other.job == job) return;
    }
    state.jobs.erase(job);
  }

  void operator()(const GangsMerged& e) {
    Gang* into = state.find(e.into);
    Gang* from = state.find(e.from);
    if (into == nullptr || from == nullptr || into == from) return;
    bool held = into->holds_lease() || from->holds_lease();
    Instant turn = now;
    bool loads = false;
    for (Gang* gang : {into, from}) {
      if (!gang->holds_lease()) continue;
      account(state, *gang, now);
      loads |= gang->phase == Phase::kLoading;
      if (gang->phase != Phase::kLoading) turn = std::min(turn, gang->turn_since);
    }
    into->gpus |= from->gpus;
    into->held |= from->held;
    into->exclusive |= from->exclusive;
    into->exiting |= from->exiting;
    into->gives_back |= from->gives_back;
    into->absence = std::max(into->absence, from->absence);
    if (from->wants && (!into->wants || from->want_since < into->want_since)) {
      into->want_since = from->want_since;
    }
    into->wants |= from->wants;
    into->reserved = false;
    for (const auto& [gpu, memory] : from->memory) {
      GangMemory& sum = into->memory[gpu];
      sum.pageable += memory.pageable;
      sum.fixed += memory.fixed;
      sum.resident += memory.resident;
      sum.coming += memory.coming;
      sum.evict_asked += memory.evict_asked;
      sum.evict_deadline = std::max(sum.evict_deadline, memory.evict_deadline);
      sum.leaving |= memory.leaving;
    }
    state.gangs.erase(e.from);
    if (!held) {
      into->phase = into->wants ? Phase::kWaiting : Phase::kIdle;
      return;
    }
    // One new lease over what both held; an attempt under way is void.
    if (!loads) return go_on(*into, turn, "gangs merged");
    load(*into, now);
    out.push_back(about(Decision::Kind::kGrant, *into, "gangs merged"));
  }

  void operator()(const GangParted& e) {
    Gang* from = state.find(e.from);
    Gang* fresh = state.find(e.fresh);
    if (from == nullptr || fresh == nullptr || from == fresh) return;
    const bool held = from->holds_lease();
    if (held) account(state, *from, now);
    const Instant turn = from->turn_since;
    fresh->held = from->held & e.gpus;
    from->held &= ~e.gpus;
    from->gpus &= ~e.gpus;
    from->reserved = false;
    fresh->exiting = from->exiting;
    fresh->first_wanted = from->first_wanted;
    for (auto it = from->memory.begin(); it != from->memory.end();) {
      if ((gpu_bit(it->first) & e.gpus) == 0) {
        ++it;
        continue;
      }
      fresh->memory[it->first] = it->second;
      it = from->memory.erase(it);
    }
    if (!held) return;
    // Two new leases over what one held.
    for (Gang* gang : {from, fresh}) {
      if (gang->held == 0) {
        gang->phase = gang->wants ? Phase::kWaiting : Phase::kIdle;
      } else {
        go_on(*gang, turn, "gangs parted");
      }
    }
  }

  /// A new lease for a holder whose gates stay open. What it lacks it loads as it runs.
  void go_on(Gang& gang, Instant turn_since, const char* reason) {
    load(gang, now);
    run(gang, now);
    gang.turn_since = turn_since;
    Decision decision = about(Decision::Kind::kGrant, gang, reason);
    decision.run_now = true;
    out.push_back(std::move(decision));
  }

  void operator()(const MemoryChanged& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr) return;
    GangMemory& memory = gang->memory[e.gpu];
    if (e.resident_bytes > memory.resident) {
      gang->load_progress = now;
      gang->lacks_memory = false;
      gang->refused_since = Instant{0};
    }
    if (memory.coming != 0 && e.coming_bytes == 0 && e.resident_bytes <= memory.resident &&
        !gang->holds_lease()) {
      memory.prefetch_not_before = now + state.config.backoff_cap;  // nothing could come
    }
    memory.pageable = e.pageable_bytes;
    memory.fixed = e.fixed_bytes;
    memory.resident = e.resident_bytes;
    memory.coming = e.coming_bytes;
  }

  void operator()(const WantsChanged& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr) return;
    if (!e.wants) {
      gang->called_in = gang->wants && gang->comes_first();
      if (gang->called_in) return;
      gang->wants = false;
      gang->reserved = false;
      if (gang->phase == Phase::kWaiting) gang->phase = Phase::kIdle;
      return;
    }
    if (!gang->wants || gang->called_in) {
      gang->called_in = false;
      gang->want_since = std::min(e.since, now);
      gang->first_wanted = std::min(gang->first_wanted, gang->want_since);
      end_gap(*gang, gang->want_since);
      if (!gang->holds_lease()) enter_competition(state, *gang, now);
    }
    gang->wants = true;
    if (gang->phase == Phase::kIdle) gang->phase = Phase::kWaiting;
  }

  void operator()(const StandingChanged& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr) return;
    const Standing before = gang->standing;
    gang->slot_over = e.is_over;
    gang->standing = e.standing;
    if (before == e.standing) return;
    gang->turn = gang->undrained = false;
    if (!gang->comes_first()) gang->reserved = false;
    const bool goes_on = e.standing == Standing::kStarted || e.standing == Standing::kOwn;
    if (gang->drained) {
      if (goes_on) {
        end_attempt(state, *gang, "another node's part could not drain", now, seed, out);
      } else {
        gang->drained = false;
        out.push_back(about(Decision::Kind::kRevoke, *gang, "drained on all nodes"));
        end_lease(state, *gang, now);
      }
    } else if (goes_on && gang->phase == Phase::kLoading && gang->loaded) {
      begin_to_run(*gang, "started on all nodes");
    }
  }

  void begin_to_run(Gang& gang, const char* reason) {
    gang.waited += now - gang.loading_since;
    run(gang, now);
    out.push_back(about(Decision::Kind::kRun, gang, reason));
  }

  void operator()(const GangExiting& e) {
    if (Gang* gang = state.find(e.gang)) gang->exiting = true;
  }

  void operator()(const ActivityEdge& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr || gang->idle == !e.busy) return;
    unstick(*gang);
    // An edge from before this lease says nothing about it.
    const Instant at = std::max(std::min(e.at, now), gang->running_since);
    if (e.busy) {
      end_gap(*gang, at);
      gang->busy_since = at;
    } else {
      begin_gap(*gang, at);
      gang->idle_since = at;
    }
    gang->idle = !e.busy;
  }

  void operator()(const GangProgressed& e) {
    if (Gang* gang = state.find(e.gang)) unstick(*gang);
  }

  void operator()(const GangAbsent& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr) return;
    gang->absence = e.absence;
    if (e.absence == Absence::kLeaves || e.absence == Absence::kAway) gang->reserved = false;
  }

  void operator()(const GangReturned& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr || gang->phase != Phase::kRunning) return;
    account(state, *gang, now);
    load(*gang, now);
    out.push_back(about(Decision::Kind::kGrant, *gang, "a process came back"));
  }

  void operator()(const LacksMemory& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr || gang->lacks_memory) return;
    gang->lacks_memory = true;
    gang->load_progress = now - state.config.load_patience;
  }

  void operator()(const GangDrained& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr || gang->phase != Phase::kDraining || gang->attempt != e.attempt) return;
    if (gang->drained) return;
    learn(gang->drain_ns, static_cast<double>((now - gang->attempt_since).count()));
    if (gang->standing == Standing::kWithdrawn) {
      gang->drained = true;  // what becomes of the lease is decided for all nodes
      return;
    }
    Decision decision = about(Decision::Kind::kRevoke, *gang, "drained");
    decision.figures = {{"drain_ns", static_cast<double>((now - gang->attempt_since).count())}};
    out.push_back(std::move(decision));
    end_lease(state, *gang, now);
  }

  void operator()(const GangNotDrained& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr || gang->phase != Phase::kDraining || gang->attempt != e.attempt) return;
    end_attempt(state, *gang, "not drained: " + e.obstacle, now, seed, out);
  }

  void operator()(const GangEvicted& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr) return;
    GangMemory& memory = gang->memory[e.gpu];
    memory.evict_asked = 0;
    memory.leaving = false;
    if (e.failed) memory.evict_not_before = now + state.config.load_patience;
    auto gpu = state.gpus.find(e.gpu);
    if (gpu != state.gpus.end())
      learn_rate(gpu->second.out_ns_per_byte, gpu->second.out_seen, e.moved_bytes, e.saved_bytes,
                 e.took);
    learn_share(gang->out_share, e.moved_bytes, e.saved_bytes);
  }

  void operator()(const GangLoaded& e) {
    Gang* gang = state.find(e.gang);
    if (gang == nullptr || gang->phase != Phase::kLoading) return;
    for (auto& [index, gpu] : state.gpus) {
      if ((gang->held & gpu_bit(index)) != 0)
        learn_rate(gpu.in_ns_per_byte, gpu.in_seen, e.moved_bytes, e.saved_bytes, e.took);
    }
    learn_share(gang->in_share, e.moved_bytes, e.saved_bytes);
    gang->loaded = true;
    if (gang->standing == Standing::kLeased) return;
    begin_to_run(*gang, "loaded");
  }
};

}  // namespace

void unstick(Gang& gang) {
  gang.stuck_since = Instant{0};
  gang.told_hung = false;
}

void load(Gang& gang, Instant now) {
  gang.phase = Phase::kLoading;
  gang.loaded = false;
  unstick(gang);
  gang.loading_since = now;
  gang.load_progress = now;
  gang.refused_since = Instant{0};
}

void set_paused(State& state, Gang& gang, bool paused, Instant now) {
  if (gang.paused == paused) return;
  gang.paused = paused;
  gang.reserved = false;
  if (paused) {
    gang.paused_since = now;
    return;
  }
  if (gang.first_wanted != kNever) {
    gang.first_wanted += now - std::max(gang.paused_since, gang.first_wanted);
  }
  if (gang.wants && !gang.holds_lease()) {
    gang.want_since = now;
    enter_competition(state, gang, now);
  }
}

void run(Gang& gang, Instant now) {
  gang.phase = Phase::kRunning;
  gang.running_since = now;
  gang.turn_since = now;
  gang.busy_since = now;
  gang.idle = false;
  // It had a thread at the gate, or it asks for memory: nothing says that it is in a gap.
  gang.in_gap = false;
}

void apply(State& state, const Event& event, Instant now, std::uint64_t seed,
           std::vector<Decision>& out) {
  std::visit(Applier{state, now, seed, out}, event);
}

void end_attempt(State& state, Gang& gang, std::string reason, Instant now, std::uint64_t seed,
                 std::vector<Decision>& out) {
  gang.phase = Phase::kRunning;
  gang.drained = false;
  gang.undrained = gang.standing == Standing::kWithdrawn;
  ++gang.failed_attempts;
  if (gang.stuck_since == Instant{0}) gang.stuck_since = gang.attempt_since;
  gang.obstacle = reason;
  std::uint64_t own_seed = seed ^ (static_cast<std::uint64_t>(gang.id) << 32) ^ gang.attempt;
  Duration pause =
      backoff(state.config.drain_budget, state.config.backoff_cap, gang.failed_attempts, own_seed);
  gang.attempt_not_before = now + pause;
  // A thread that stopped at the closed gate goes on; only wanting more GPUs outlives the attempt.
  if ((gang.gpus & ~gang.held) == 0) gang.wants = false;
  Decision decision = about(Decision::Kind::kReopen, gang, std::move(reason));
  decision.figures = {{"failed_attempts", static_cast<double>(gang.failed_attempts)},
                      {"backoff_ns", static_cast<double>(pause.count())},
                      {"drain_ns", static_cast<double>((now - gang.attempt_since).count())}};
  out.push_back(std::move(decision));
}

}  // namespace plexrl::nodemgr::policy
