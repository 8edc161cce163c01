#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>

/// Words that the whole policy uses. Nothing here reads a clock: time is passed in.
namespace plexrl::nodemgr::policy {

using Duration = std::chrono::nanoseconds;
/// A moment: time since boot (CLOCK_BOOTTIME in the daemon, virtual time in a simulation).
using Instant = std::chrono::nanoseconds;
inline constexpr Instant kNever = Instant::max();

/// Chosen by the caller, never reused; 0 is no gang.
enum class GangId : std::uint64_t {};
inline constexpr GangId kNoGang{0};

/// A GPU is an index below 64; a set of them is a mask.
using GpuMask = std::uint64_t;
inline constexpr int kMaxGpus = 64;
inline constexpr GpuMask gpu_bit(int gpu) { return GpuMask{1} << gpu; }

/// A number that a decision rests on; the unit is in the name (`switch_cost_ns`).
struct Figure {
  std::string name;
  double value = 0;
  bool operator==(const Figure&) const = default;
};

/// As docs/contract.md names them. A running gang may be idle; it keeps its lease until withdrawn.
enum class Phase { kIdle, kWaiting, kLoading, kRunning, kDraining };
const char* phase_name(Phase phase);
/// What docs/contract.md calls a gang without a lease that an administrator has paused.
/// Why a gang does not run, or no longer, while an administrator keeps its GPU for another job.
inline constexpr const char* kKeptAlone = "an administrator keeps the GPU for another job";
inline constexpr const char* kPausedName = "paused";

/// Where the contexts of a gang's processes are (driver checkpoints, nodemgr/checkpoints.h).
enum class Absence {
  kHere,     ///< on the GPUs
  kLeaves,   ///< on their way out: its lease is taken back, and it gets none before it is decided
  kAway,     ///< in host memory, their room promised to others; a lease that it has got by being
             ///< united with a gang that is on its GPUs is taken back
  kReturns,  ///< in host memory, with room booked: they come back with the next lease
};

/// What a gang may do that is a part of a job over several nodes (nodemgr/spanning). The caller is
/// told by the cluster manager, and tells on.
enum class Standing {
  kOwn,      ///< it is none, or goes on alone: a gang like any other
  kBarred,   ///< gets no lease
  kCalled,   ///< shall say (Gang::turn) when it would get its GPUs, and gets none
  kTaken,    ///< gets its GPUs before others, who are withdrawn for it whatever they have had; then
             ///< they are kept for it (Gang::kept)
  kLeased,   ///< the same, and gets its lease, but does not run
  kStarted,  ///< runs. That others want its GPUs is said (Gang::release), and it stays
  kWithdrawn,  ///< shall drain, and stay so (Gang::drained) until it is told what is next
};

/// Whether other gangs here wait for the GPUs of one that is kStarted.
enum class Release {
  kNone,
  kInGap,  ///< as it is in a gap
  kNow,
};

}  // namespace plexrl::nodemgr::policy
