#pragma once

#include <vector>

#include "tools/sim/job_model.h"
#include "tools/sim/random.h"
#include "tools/sim/simulation.h"

namespace plexrl::sim {

/// A job with one of RollMux's phase profiles (arXiv 2512.11306, table 6: balanced, rollout-heavy
/// or train-heavy; small, medium or large, equally likely), phase lengths drawn once, its bound
/// uniform in 1 to 2, 8 GPUs for rollout and 8 for training, and the host state of table 2 (7B,
/// 14B, 32B for small, medium, large) as its memory.
JobModel rollmux_job(Random& random);

/// `nodes` nodes of 8 GPUs in each of two pools, with 2 TB for what is paged out.
Setup rollmux_cluster(int nodes);

placement::PlacerConfig placer_for(const Setup& setup);

extern const char* const kRollmuxOrigin;

}  // namespace plexrl::sim
