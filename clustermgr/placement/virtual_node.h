#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "clustermgr/placement/types.h"
#include "nodemgr/policy/step.h"

namespace plexrl::clustermgr::placement {

/// What it takes to move a gang's memory. Rates are per GPU; the GPUs of a gang move side by side.
struct MoveModel {
  double out_bytes_per_s = 25e9;
  double in_bytes_per_s = 25e9;
  Duration out_fixed{0};  ///< added to every eviction
  Duration in_fixed{0};   ///< added to every load
  Duration drain{std::chrono::milliseconds(1)};
  bool at_once = true;  ///< a load begins while others still leave; false: when they have left

  bool operator==(const MoveModel&) const = default;
};

/// A gang on a virtual node.
struct VirtualGang {
  std::string name;
  GpuMask gpus = 1;
  std::int64_t pageable_bytes = 0;  ///< per GPU
  std::int64_t fixed_bytes = 0;     ///< per GPU
  int priority = 50;
  Duration max_wait{0};  ///< 0: the policy's
};

/// What happened to a gang so far.
struct GangTotals {
  Duration worked{0};
  Duration waited{0};  ///< at the gate, with memory not yet there included
  Duration longest_wait{0};
  std::uint64_t grants = 0;
  std::int64_t in_bytes = 0;  ///< over all its GPUs
  std::int64_t out_bytes = 0;
};

/// A node in virtual time under nodemgr/policy: carries out the policy's decisions as obedient
/// processes would, with the cost of draining and moving charged. The policy is the one that the
/// daemon links.
///
/// A burst goes on where it was cut. Not thread-safe; deterministic.
class VirtualNode {
 public:
  struct Finished {
    GangId gang{};
    Instant at{0};
    Duration work{0};
  };

  /// `usable_bytes`: HBM for jobs on each GPU, GPUs numbered from 0.
  VirtualNode(const nodemgr::policy::Config& config, const MoveModel& moves,
              const std::vector<std::int64_t>& usable_bytes, std::uint64_t seed);

  GangId add(const VirtualGang& gang, Instant now);
  /// The gang has left; its bytes are free. It must have no burst under way.
  void remove(GangId gang, Instant now);

  /// The gang wants to compute for `work` from now on. One burst at a time.
  void submit(GangId gang, Duration work, Instant now);

  /// When something happens next; kNever: only when more is submitted.
  Instant next() const;
  /// Handles everything due at `now`, appends bursts that came to their end.
  void advance(Instant now, std::vector<Finished>& finished);

  /// So far, with what runs or waits at `now`.
  GangTotals totals(GangId gang, Instant now) const;
  std::uint64_t events() const { return events_; }
  const nodemgr::policy::State& state() const { return state_; }

 private:
  enum class What : std::uint8_t { kBurstEnd, kIdleEdge, kDrained, kLoaded, kEvicted, kPrefetched };
  struct Later {
    Instant at;
    std::uint64_t order;
    What what;
    GangId gang;
    std::uint64_t number;
    int gpu;
    std::int64_t bytes;
    Duration took;
    bool operator>(const Later& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };
  struct Live {
    VirtualGang gang;
    bool busy = false;   ///< inside a burst
    bool waits = false;  ///< at the gate
    bool runs = false;   ///< its burst progresses
    Instant waits_since{0};
    Instant runs_since{0};
    Duration left{0};
    Duration work{0};
    std::uint64_t life = 0;            ///< outdates scheduled ends
    std::uint64_t loads = 0;           ///< outdates scheduled ends of loads
    std::map<int, Later> prefetches;   ///< under way, by GPU
    std::optional<Later> awaits_room;  ///< the end of a load that waits for what others give up
    GangTotals totals;
  };

  void later(Instant at, What what, GangId gang, std::uint64_t number, int gpu = 0,
             std::int64_t bytes = 0, Duration took = Duration{0});
  void happen(const Later& what, Instant now, std::vector<Finished>& finished);
  void memory_event(GangId id, const Live& live, int gpu, std::int64_t resident);
  void carry_out(const nodemgr::policy::Decision& decision, Instant now);
  void wait(GangId id, Live& live, Instant now);
  void go_on(GangId id, Live& live, Instant now);
  void pause(Live& live, Instant now);
  void load(GangId id, Live& live, Instant now);
  void prefetch(Live& live, const nodemgr::policy::Decision& decision, Instant now);
  /// Over, or called off; what has come by now stays. Bytes by GPU.
  std::map<int, std::int64_t> end_prefetches(GangId id, Live& live, Instant now);
  bool has_room(GangId id);
  void end_load(GangId id, Live& live, const Later& what);
  void go_on_loading(Instant now);

  nodemgr::policy::State state_;
  MoveModel moves_;
  std::uint64_t seed_;
  std::map<GangId, Live> gangs_;
  std::vector<nodemgr::policy::Event> pending_;
  Instant pending_at_ = kNever;
  std::priority_queue<Later, std::vector<Later>, std::greater<>> queue_;
  Instant wake_at_ = kNever;
  std::uint64_t order_ = 0;
  std::uint64_t next_gang_ = 1;
  std::uint64_t events_ = 0;
};

}  // namespace plexrl::clustermgr::placement
