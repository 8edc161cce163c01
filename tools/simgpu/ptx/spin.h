#pragma once

#include "tools/simgpu/ptx/warp.h"

/// Finding loops that can't change anything, so that a kernel that waits costs no core.
///
/// After a number of backward branches a warp is probed: the registers of its frame are hashed and
/// its clock is frozen. If the same branch is reached with the same hash and no store or atomic has
/// changed memory, then the loop goes on for ever unless time passes or somebody else writes
/// memory: the lanes are spinning. Otherwise the next probe comes after twice as many branches. A
/// false match (2^-64) only delays the warp.
///
/// The same counter bounds how long one group of lanes may run before other groups of the warp get
/// a turn, because min-PC order alone would let a lane that spins on a lock starve the lane that
/// holds it.
namespace plexrl::simgpu::ptx {

/// Called after Event::kBackward with the active lanes saved in their frame and `op` the branch's
/// target. Updates stalled, spinning and what is granted next.
void after_backward_branches(Warp& warp, const Op* op);

/// A new warp's first grant.
void start_counting(Warp& warp);

/// The warp gets a new turn after Event::kSpin: probe again at once.
void resume_spinning(Warp& warp);

}  // namespace plexrl::simgpu::ptx
