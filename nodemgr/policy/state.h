#pragma once

#include <array>
#include <map>
#include <string>

#include "nodemgr/policy/config.h"
#include "nodemgr/policy/gap_profile.h"
#include "nodemgr/policy/types.h"

namespace plexrl::nodemgr::policy {

/// A gang's memory on one GPU, bytes. `resident` is the part of `pageable` that is in HBM;
/// `fixed` (contexts, driver-owned allocations) is always there.
struct GangMemory {
  std::int64_t pageable = 0;
  std::int64_t fixed = 0;
  std::int64_t resident = 0;

  std::int64_t coming = 0;  ///< bytes on their way in before the gang has a lease (kPrefetch)
  Instant prefetch_not_before{0};

  std::int64_t evict_asked = 0;  ///< bytes on their way out; 0: none, or given up waiting for them
  bool leaving = false;          ///< asked to evict, and not all of its processes have answered
  Instant evict_deadline{0};
  Instant evict_not_before{0};  ///< after a failure or silence

  std::int64_t missing() const { return pageable > resident ? pageable - resident : 0; }
  /// Bytes of HBM that are its own, or are about to be.
  std::int64_t taken() const { return resident + coming; }
  /// Bytes of HBM that it needs beside those to run.
  std::int64_t lacking() const { return pageable > taken() ? pageable - taken() : 0; }
};

/// One gang. Its lease covers `held`; `gpus` is what it needs to run.
struct Gang {
  GangId id = kNoGang;
  std::string job;
  std::string team;  ///< "": the team of those who name none
  int priority = 50;
  double max_slowdown = 0;  ///< the owner's bound on how much slower than alone; 0: none
  Duration max_wait{0};     ///< 0: the configuration's
  bool exclusive = false;
  bool exiting = false;
  bool paused = false;  ///< by an administrator: gives its lease back, and gets none until resumed
  Instant paused_since{0};
  Instant alone_until{0};  ///< by an administrator: no other job runs on its GPUs before
  GpuMask gpus = 0;

  Phase phase = Phase::kIdle;
  GpuMask held = 0;
  bool wants = false;  ///< a thread waits at the gate
  Instant want_since{0};
  Absence absence = Absence::kHere;
  bool gives_back = false;  ///< its lease is taken back as soon as it can be, waiters or not
  bool reserved = false;    ///< waiting, and its GPUs are kept free for it while others are evicted
  Instant not_before{0};    ///< a reservation failed: no new one before

  // Of a part of a job over several nodes.
  Standing standing = Standing::kOwn;
  bool slot_over = false;  ///< a lease that it has is to be given back
  bool called_in = false;  ///< it waits for a lease only because other parts do
  bool turn = false;       ///< it was called, and it has been its turn since
  bool kept = false;       ///< taken: it is reserved, with room for its memory
  bool loaded = false;     ///< leased: it could run
  bool drained = false;    ///< withdrawn: its gates are closed, nothing is outstanding
  bool undrained = false;  ///< withdrawn: it could not drain, and runs on
  Release release = Release::kNone;

  Instant running_since{0};
  Instant turn_since{0};  ///< the same, of the first lease of several that went on in each other
  bool granted_late = false;  ///< its wait was near its bound: it is not preempted at once
  bool idle = false;
  Instant idle_since{0};
  Instant lease_ended{0};  ///< least recently used first
  Instant loading_since{0};
  Instant load_progress{0};
  bool lacks_memory = false;  ///< the driver refused what the figures allow
  /// Since when it does although nobody else has memory to give up; 0: it does not.
  Instant refused_since{0};

  std::uint64_t attempt = 0;  ///< number of the current or last attempt to withdraw
  Instant attempt_since{0};
  int failed_attempts = 0;  ///< in a row
  Instant attempt_not_before{0};
  Instant stuck_since{0};  ///< attempts fail, and nothing was submitted or finished; 0: not so
  std::string obstacle;    ///< to the last attempt
  bool told_hung = false;

  // What it is like.
  GapProfile profile;
  /// Of the bytes that leave or come in, so much is copied: what is unchanged, untouched or one
  /// word repeated is not.
  double out_share = 1, in_share = 1;
  std::uint64_t gaps_shown = 0;  ///< in this run; what earlier ones have taught is part of it then
  bool in_gap = false;           ///< everything submitted has finished, and nothing is wanted
  Instant gap_since{0};
  Duration burst_before{0};  ///< the burst that ended in this gap
  Duration burst_so_far{0};  ///< of the burst that goes on, in leases that have ended
  Instant busy_since{0};     ///< in this lease
  double drain_ns = 0;       ///< moving average

  Instant first_wanted = kNever;
  Duration service{0};  ///< time with a running lease, in all
  Duration waited{0};   ///< finished waits, in all: from wanting a lease until it runs

  std::string wait_reason;  ///< why it does not run, as last decided
  GangId waits_for = kNoGang;
  std::map<int, GangMemory> memory;

  /// One that exits is not kept from doing so.
  bool is_kept_paused() const { return paused && !exiting; }
  bool is_kept_alone(Instant now) const { return now < alone_until && !is_kept_paused(); }
  /// Its lease begins and ends together with those of other nodes.
  bool is_in_step() const {
    return comes_first() || standing == Standing::kStarted || standing == Standing::kWithdrawn;
  }
  /// It gets its GPUs before others.
  bool comes_first() const { return standing == Standing::kTaken || standing == Standing::kLeased; }
  bool holds_lease() const {
    return phase == Phase::kLoading || phase == Phase::kRunning || phase == Phase::kDraining;
  }
};

/// The fastest of the last transfers: the others were slowed by something that passes, and a cost
/// that is taken for too high is never measured again.
struct Fastest {
  std::array<double, 4> ns_per_byte{};
  int samples = 0;
};

struct Gpu {
  std::int64_t usable = 0;       ///< bytes for jobs: without reserve and without what others use
  std::int64_t departing = 0;    ///< bytes of ended processes that the driver has not freed yet
  bool frozen = false;           ///< an earlier manager's processes have not all answered yet
  double out_ns_per_byte = 0.1;  ///< until the first transfer shows it
  double in_ns_per_byte = 0.1;
  Fastest out_seen;
  Fastest in_seen;
};

/// Of GPU time: a team's, or a job's within its team.
struct Share {
  double weight = 1;
  double virtual_ns = 0;  ///< GPU time that ended leases have had, divided by the weight
};

struct State {
  Config config;
  std::map<std::string, Share> teams;
  std::map<std::string, Share> jobs;
  std::map<int, Gpu> gpus;
  std::map<GangId, Gang> gangs;

  Gang* find(GangId id) {
    auto it = gangs.find(id);
    return it == gangs.end() ? nullptr : &it->second;
  }
  /// Bytes of `usable` that no gang and no ended process occupies; negative when a GPU is overfull.
  std::int64_t free_bytes(int gpu) const;
  /// Some gang of another job that GPUs of `gpus` are kept for, or null. Gangs that are both kept
  /// alone do not keep each other off, and nothing keeps off one that exits: it may be writing a
  /// checkpoint while it still can.
  const Gang* kept_for(GpuMask gpus, const Gang& gang, Instant now) const;
  /// The gang whose lease covers the GPU, or null.
  Gang* holder(int gpu);
};

}  // namespace plexrl::nodemgr::policy
