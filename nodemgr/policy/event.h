#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "nodemgr/policy/gap_profile.h"
#include "nodemgr/policy/types.h"

/// What the policy is told. Events about a gang or GPU it does not know are ignored: they may
/// arrive late.
namespace plexrl::nodemgr::policy {

/// A GPU appeared or its figures changed.
struct GpuChanged {
  int gpu = 0;
  std::int64_t usable_bytes = 0;
  bool frozen = false;
  std::int64_t departing_bytes = 0;  ///< of ended processes, not free yet
};

/// A team's weight in the fair shares. One that was never told of weighs 1.
struct TeamChanged {
  std::string team;
  double weight = 1;
};

/// A gang appeared or its description changed. The lease state of a known gang is kept.
struct GangChanged {
  GangId gang = kNoGang;
  std::string job;
  int priority = 50;
  Duration max_wait{0};
  GpuMask gpus = 0;
  bool exclusive = false;
  std::string team = {};
  double max_slowdown = 0;
  bool paused = false;
  Instant alone_until{0};  ///< no gang of another job runs on its GPUs before
  bool spans = false;      ///< a part of a job over several nodes: kBarred until told otherwise
};

/// What a part of a job over several nodes may do now; with `is_over` a lease that it has is taken
/// back as soon as it can be.
struct StandingChanged {
  GangId gang = kNoGang;
  Standing standing = Standing::kOwn;
  bool is_over = false;
};

/// After a manager's restart: the gang already holds these GPUs and runs.
struct GangAdopted {
  GangId gang = kNoGang;
  GpuMask held = 0;
  bool unproven = false;  ///< nobody but the gang says so: it has to give the GPUs back first
};

/// What earlier runs have shown of the gang's gaps. It counts until the gang has shown one itself.
struct GangRemembered {
  GangId gang = kNoGang;
  GapProfile profile;
};

/// All its processes are gone: its GPUs and bytes are free.
struct GangGone {
  GangId gang = kNoGang;
};

/// `from` joins `into` (a process now uses GPUs of both); leases are united.
struct GangsMerged {
  GangId into = kNoGang;
  GangId from = kNoGang;
};

/// GPUs of `from` are another gang's from now on: their processes need not run together any more.
/// Each keeps its part of a lease. `fresh` has been described before.
struct GangParted {
  GangId from = kNoGang;
  GangId fresh = kNoGang;
  GpuMask gpus = 0;
};

struct MemoryChanged {
  GangId gang = kNoGang;
  int gpu = 0;
  std::int64_t pageable_bytes = 0;
  std::int64_t fixed_bytes = 0;
  std::int64_t resident_bytes = 0;
  std::int64_t coming_bytes = 0;  ///< of a kPrefetch that is under way
};

/// A thread waits at the gate since `since`; or (`wants` false) the one that waited is gone.
struct WantsChanged {
  GangId gang = kNoGang;
  bool wants = true;
  Instant since{0};
};

/// Some process of the gang got SIGTERM or entered exit.
struct GangExiting {
  GangId gang = kNoGang;
};

/// All processes of the gang are idle since `at`, or one is busy since `at`.
struct ActivityEdge {
  GangId gang = kNoGang;
  bool busy = false;
  Instant at{0};
};

/// Some process of the gang has submitted or finished something since the last event about it.
struct GangProgressed {
  GangId gang = kNoGang;
};

/// A process of the running gang came back without its lease: one new lease for all of them.
struct GangReturned {
  GangId gang = kNoGang;
};

/// The driver refused a holder memory that its promise covers.
struct LacksMemory {
  GangId gang = kNoGang;
};

/// The contexts of the gang's processes leave, have left, or come back. While they are away the
/// caller counts them as pageable and not resident (MemoryChanged), so that a lease waits for their
/// room.
struct GangAbsent {
  GangId gang = kNoGang;
  Absence absence = Absence::kHere;
};

/// Every process has drained.
struct GangDrained {
  GangId gang = kNoGang;
  std::uint64_t attempt = 0;
};

/// A process could not drain.
struct GangNotDrained {
  GangId gang = kNoGang;
  std::uint64_t attempt = 0;
  std::string obstacle;
};

/// Every process that was asked has answered.
struct GangEvicted {
  GangId gang = kNoGang;
  int gpu = 0;
  bool failed = false;
  std::int64_t moved_bytes = 0;
  Duration took{0};
  std::int64_t saved_bytes = 0;  ///< that left without a copy
};

/// Every process has loaded.
struct GangLoaded {
  GangId gang = kNoGang;
  std::int64_t moved_bytes = 0;
  Duration took{0};
  std::int64_t saved_bytes = 0;  ///< that came without a copy
};

using Event =
    std::variant<GpuChanged, TeamChanged, GangChanged, GangAdopted, GangRemembered, GangGone,
                 GangsMerged, GangParted, MemoryChanged, WantsChanged, GangExiting, GangReturned,
                 LacksMemory, ActivityEdge, GangProgressed, GangAbsent, StandingChanged,
                 GangDrained, GangNotDrained, GangEvicted, GangLoaded>;

}  // namespace plexrl::nodemgr::policy
