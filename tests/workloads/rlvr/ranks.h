#pragma once

#include "tests/workloads/rlvr/options.h"

namespace plexrl::workloads::rlvr {

/// The job in several processes, each on a device of its own; rank i has the i-th after
/// options.device. They meet by NCCL.
///
/// Data-parallel: options.ranks of them, each samples and trains; gradients are averaged in each
/// update, so all have the same policy.
///
/// Disaggregated: options.ranks train, and as many more sample with the policy that they get by a
/// broadcast at the end of each step; each hands what it has sampled to one that trains.
///
/// Returns the exit status.
int run_in_ranks(const Options& options);

}  // namespace plexrl::workloads::rlvr
