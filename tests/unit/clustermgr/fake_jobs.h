#pragma once

#include <string>

#include "clustermgr/placement/types.h"

namespace plexrl::clustermgr::placement::test {

/// A job that rolls out for `rollout_s`, then trains for `train_s`, `steps` times, alone, as its
/// nodes' agents recorded it; `wobble` makes every second step longer by that share and the others
/// shorter.
inline JobProfile two_phases(std::uint64_t id, double rollout_s, double train_s, double wobble = 0,
                             int steps = 10) {
  JobProfile job;
  job.id = JobId{id};
  job.name = "job" + std::to_string(id);
  job.gangs.resize(2);
  job.gangs[0].pool = "rollout";
  job.gangs[1].pool = "train";
  double at = 0;
  for (int i = 0; i < steps; ++i) {
    double factor = 1 + (i % 2 == 0 ? wobble : -wobble);
    double rollout = rollout_s * factor;
    Instant begin = from_seconds(at);
    Instant middle = from_seconds(at + rollout);
    Instant end = from_seconds(at + rollout + train_s);
    job.gangs[0].bursts.push_back({begin, middle, middle - begin});
    job.gangs[1].bursts.push_back({middle, end, end - middle});
    at += rollout + train_s;
  }
  return job;
}

}  // namespace plexrl::clustermgr::placement::test
