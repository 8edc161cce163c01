#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "nodemgr/policy/step.h"

namespace plexrl::nodemgr::policy {

using Kind = Decision::Kind;

inline constexpr GangId kA{1};
inline constexpr GangId kB{2};
inline constexpr GangId kC{3};

/// Two GPUs of 1000 bytes and a clock; steps and keeps the last decisions.
class PolicyTest : public ::testing::Test {
 protected:
  PolicyTest() {
    state.config.min_quantum = 100ms;
    step_with({GpuChanged{0, 1000}, GpuChanged{1, 1000}});
  }

  void gang(GangId id, GpuMask gpus, std::int64_t bytes, int priority = 50,
            bool exclusive = false) {
    std::vector<Event> events = {GangChanged{id, "job", priority, 0s, gpus, exclusive}};
    for (int gpu : {0, 1}) {
      if (gpus & gpu_bit(gpu)) events.push_back(MemoryChanged{id, gpu, bytes, 0, 0});
    }
    step_with(events);
  }

  void step_with(std::vector<Event> events) {
    StepResult result = step(state, events, now, 1);
    decisions = result.decisions;
    wake_at = result.wake_at;
  }
  void at(Instant time, std::vector<Event> events = {}) {
    now = time;
    step_with(std::move(events));
  }
  /// `id` wants, loads its bytes on GPU 0 and runs.
  void runs(GangId id, std::int64_t bytes) {
    step_with({WantsChanged{id, true, now}});
    step_with({MemoryChanged{id, 0, bytes, 0, bytes}, GangLoaded{id}});
    ASSERT_EQ(state.find(id)->phase, Phase::kRunning);
  }
  const Decision* find(Kind kind) const {
    auto it = std::find_if(decisions.begin(), decisions.end(),
                           [&](const Decision& d) { return d.kind == kind; });
    return it == decisions.end() ? nullptr : &*it;
  }

  State state;
  Instant now = 1s;
  std::vector<Decision> decisions;
  Instant wake_at = kNever;
};

}  // namespace plexrl::nodemgr::policy
