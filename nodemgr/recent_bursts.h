#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>

#include "nodemgr/policy/state.h"

namespace plexrl::nodemgr {

/// The last bursts of each gang, for whoever wants to replay them: when it began to want its GPUs,
/// when all that it had submitted was done, and how long of that it had its lease and ran.
///
/// Sees the policy's state after each of its steps. Boot time; one thread.
class RecentBursts {
 public:
  struct Burst {
    std::chrono::nanoseconds wanted{0}, ended{0}, work{0};
  };
  static constexpr std::size_t kMost = 64;  ///< of a gang

  /// Gangs that are not in the state any more are forgotten.
  void look(const policy::State& state);

  /// Oldest first.
  const std::deque<Burst>& of(policy::GangId gang) const;

 private:
  struct Seen {
    bool in_gap = false;
    std::chrono::nanoseconds gap_since{0};
    std::chrono::nanoseconds wanted{0};  ///< of the burst that goes on; 0: not seen
    std::deque<Burst> bursts;
  };
  static void look(const policy::Gang& gang, Seen& seen);

  std::map<policy::GangId, Seen> gangs_;
};

}  // namespace plexrl::nodemgr
