#pragma once

#include "nodemgr/policy/types.h"

namespace plexrl::nodemgr::policy {

using namespace std::chrono_literals;

/// What an operator may set ([policy] in nodemgr.toml), and the constants that bound the policy's
/// patience with processes that do not answer.
struct Config {
  /// A gang is idle when nothing it submitted is outstanding for so long.
  Duration grace = 5ms;
  /// A busy holder runs at least this multiple of the predicted switch cost.
  double quantum_factor = 10;
  /// Nor less than this, however cheap the switch.
  Duration min_quantum = 100ms;
  /// Where every job always wants the GPU, switching takes at most this share of its time: the
  /// quantum is long enough for it. Gaps are given away by their own worth (gap_profile.h).
  double switch_share = 0.05;
  /// Of the link's measured rate, so much is for memory that comes back before its gang asks for
  /// the GPU; 0: none comes back before.
  double prefetch_share = 0.5;
  /// No gang that competes with holders that can be cut waits longer in one stretch.
  Duration max_wait = 120s;
  /// A holder that others wait for, and that finishes nothing for so long while it can't be cut, is
  /// told of once as hung; 0: never.
  Duration hang_after = 5min;
  /// A process gives up draining after so long without progress; base of the back-off.
  Duration drain_budget = 250ms;

  /// An attempt that nobody answers is abandoned (a stopped process keeps its GPU).
  Duration attempt_patience = 10s;
  /// An eviction that nobody answers is asked of the next victim, after this plus a second per
  /// 100 MB.
  Duration evict_patience = 5s;
  /// A load without progress makes the policy evict more than its own figures call for.
  Duration load_patience = 1s;
  Duration backoff_cap = 10s;
};

}  // namespace plexrl::nodemgr::policy
