#include "tests/unit/nodemgr/policy_world.h"

#include <algorithm>
#include <bit>

namespace plexrl::nodemgr::policy::test {

World::World(Config config, std::map<int, std::int64_t> gpu_bytes, std::uint64_t seed)
    : rng_(seed) {
  state_.config = config;
  std::vector<Event> events;
  for (auto [gpu, bytes] : gpu_bytes) events.push_back(GpuChanged{gpu, bytes, false});
  step(state_, events, now_, 0);
}

GangId World::add(const Habit& habit, Instant starts_at) {
  GangId id{next_gang_++};
  fakes_[id].habit = habit;
  longest_wait_[id] = Duration{0};
  grants_[id] = 0;
  later(starts_at - now_, What::kStart, id);
  return id;
}

void World::later(Duration in, What what, GangId gang, std::uint64_t number, int gpu,
                  std::int64_t bytes) {
  queue_.push({now_ + in, order_++, what, gang, number, gpu, bytes});
}

void World::begin_burst(GangId id, std::vector<Event>& events) {
  Fake& fake = fakes_[id];
  Gang* gang = state_.find(id);
  fake.busy = true;
  fake.burst_left = fake.habit.burst;
  if (gang != nullptr && gang->phase == Phase::kRunning) {
    events.push_back(ActivityEdge{id, true, now_});
    go_on(id);
  } else {
    fake.waits = true;
    events.push_back(WantsChanged{id, true, now_});
  }
}

void World::go_on(GangId id) {
  Fake& fake = fakes_[id];
  fake.waits = false;
  if (!fake.busy) return;
  fake.burst_ends = now_ + fake.burst_left;
  later(fake.burst_left, What::kBurstEnd, id, ++fake.life);
}

void World::call_off_prefetches(GangId id) {
  ++fakes_[id].prefetches;
  for (auto& [gpu, memory] : state_.find(id)->memory) memory.coming = 0;
}

void World::happen(const Later& what, std::vector<Event>& events) {
  Fake& fake = fakes_[what.gang];
  const Habit& habit = fake.habit;
  Gang* gang = state_.find(what.gang);
  switch (what.what) {
    case What::kWake:
      break;
    case What::kWants:
      if (fake.waits) events.push_back(WantsChanged{what.gang, true, now_});
      break;
    case What::kStart:
      if (gang == nullptr) {
        events.push_back(GangChanged{what.gang, habit.job, habit.priority, Duration{0}, habit.gpus,
                                     habit.exclusive, habit.team, habit.max_slowdown});
        for (const auto& [gpu, info] : state_.gpus) {
          if (habit.gpus & gpu_bit(gpu)) {
            events.push_back(MemoryChanged{what.gang, gpu, habit.bytes, 0, 0});
          }
        }
      }
      begin_burst(what.gang, events);
      break;
    case What::kBurstEnd:
      if (what.number != fake.life) break;
      fake.busy = false;
      ++bursts_[what.gang];
      later(state_.config.grace, What::kIdleEdge, what.gang, fake.life);
      later(habit.gap, What::kStart, what.gang);
      break;
    case What::kIdleEdge:
      if (what.number == fake.life && !fake.busy) {
        events.push_back(ActivityEdge{what.gang, false, now_ - state_.config.grace});
      }
      break;
    case What::kDrained:
      events.push_back(GangDrained{what.gang, what.number});
      break;
    case What::kNotDrained:
      events.push_back(GangNotDrained{what.gang, what.number, "stream busy"});
      break;
    case What::kLoaded: {
      if (what.number != fake.loads) break;
      bool has_room = true;
      for (auto& [gpu, memory] : gang->memory) {
        has_room &= memory.lacking() <= std::max<std::int64_t>(0, state_.free_bytes(gpu));
      }
      if (!has_room) {  // others are still leaving
        later(Duration{1000}, What::kLoaded, what.gang, what.number, 0, what.bytes);
        break;
      }
      fake.loading = false;
      for (const auto& [gpu, info] : state_.gpus) {
        if (habit.gpus & gpu_bit(gpu)) {
          events.push_back(MemoryChanged{what.gang, gpu, habit.bytes, 0, habit.bytes});
        }
      }
      events.push_back(GangLoaded{what.gang, what.bytes, Duration(what.bytes)});
      break;
    }
    case What::kPrefetched: {
      if (what.number != fake.prefetches) break;
      const std::int64_t resident = gang->memory[what.gpu].resident + what.bytes;
      events.push_back(MemoryChanged{what.gang, what.gpu, habit.bytes, 0, resident});
      break;
    }
    case What::kEvicted: {
      std::int64_t left = std::max<std::int64_t>(0, gang->memory[what.gpu].resident - what.bytes);
      events.push_back(MemoryChanged{what.gang, what.gpu, habit.bytes, 0, left});
      events.push_back(GangEvicted{what.gang, what.gpu, false, what.bytes, Duration(what.bytes)});
      break;
    }
  }
}

void World::carry_out(const Decision& decision) {
  history_.push_back(decision);
  Fake& fake = fakes_[decision.gang];
  Gang* gang = state_.find(decision.gang);
  switch (decision.kind) {
    case Decision::Kind::kWithdraw: {
      if (fake.habit.exclusive) breach("an exclusive gang was withdrawn");
      if (random() < fake.habit.refuses_to_drain) {
        later(state_.config.drain_budget, What::kNotDrained, decision.gang, decision.attempt);
        break;
      }
      // The gate closes now: what is left of the burst runs after the next grant.
      if (fake.busy && !fake.loading) {
        fake.burst_left = std::max(Duration{1}, fake.burst_ends - now_);
        ++fake.life;
      }
      later(Duration(static_cast<std::int64_t>(random() * 2e6)), What::kDrained, decision.gang,
            decision.attempt);
      break;
    }
    case Decision::Kind::kRevoke:
      ++fake.loads;
      fake.loading = false;
      if (fake.busy) {
        fake.waits = true;
        later(Duration{0}, What::kWants, decision.gang);
      }
      break;
    case Decision::Kind::kGrant: {
      ++grants_[decision.gang];
      for (const Figure& figure : decision.figures) {
        if (figure.name != "waited_ns") continue;
        Duration waited(static_cast<std::int64_t>(figure.value));
        longest_wait_[decision.gang] = std::max(longest_wait_[decision.gang], waited);
      }
      if (decision.gpus != fake.habit.gpus) breach("a lease came in part");
      call_off_prefetches(decision.gang);
      if (decision.run_now) {
        go_on(decision.gang);
        break;
      }
      std::int64_t missing = 0;
      for (auto& [gpu, memory] : gang->memory) missing = std::max(missing, memory.missing());
      fake.loading = true;
      later(Duration(missing), What::kLoaded, decision.gang, ++fake.loads, 0, missing);
      break;
    }
    case Decision::Kind::kRun:
      go_on(decision.gang);
      break;
    case Decision::Kind::kPrefetch:
      if (gang->holds_lease()) breach("bytes of a holder were prefetched");
      if (gang->memory[decision.gpu].leaving) breach("bytes came and left at once");
      later(Duration(decision.bytes), What::kPrefetched, decision.gang, fake.prefetches,
            decision.gpu, decision.bytes);
      break;
    case Decision::Kind::kEvict:
      call_off_prefetches(decision.gang);
      if (gang->holds_lease()) breach("bytes of a holder were evicted");
      later(Duration(decision.bytes), What::kEvicted, decision.gang, 0, decision.gpu,
            decision.bytes);
      break;
    case Decision::Kind::kReopen:
    case Decision::Kind::kHang:
    case Decision::Kind::kWait:
      break;
  }
}

void World::check() {
  GpuMask held = 0;
  for (const auto& [id, gang] : state_.gangs) {
    if (!gang.holds_lease()) continue;
    if ((held & gang.held) != 0) breach("two holders of one GPU");
    held |= gang.held;
  }
  for (const auto& [gpu, info] : state_.gpus) {
    std::int64_t resident = 0;
    for (auto& [id, gang] : state_.gangs) {
      if (gang.memory.count(gpu)) resident += gang.memory[gpu].taken();
    }
    if (resident > info.usable) breach("more bytes resident than the GPU has");
  }
}

Duration World::served(GangId id) {
  const Gang* gang = state_.find(id);
  if (gang == nullptr) return Duration{0};
  const bool runs = gang->phase == Phase::kRunning || gang->phase == Phase::kDraining;
  return gang->service + (runs ? now_ - gang->running_since : Duration{0});
}

void World::weigh(const std::string& team, double weight) {
  step(state_, std::vector<Event>{TeamChanged{team, weight}}, now_, 0);
}

void World::breach(const std::string& text) {
  breaches_.push_back(text + " at " + std::to_string(now_.count()));
}

void World::run_until(Instant end) {
  while (!queue_.empty() && queue_.top().at <= end) {
    now_ = queue_.top().at;
    std::vector<Event> events;
    while (!queue_.empty() && queue_.top().at == now_) {
      Later what = queue_.top();
      queue_.pop();
      happen(what, events);
    }
    StepResult result = step(state_, events, now_, order_);
    for (const Decision& decision : result.decisions) carry_out(decision);
    check();
    if (result.wake_at != kNever) later(result.wake_at - now_, What::kWake, GangId{1});
  }
  now_ = end;
}

}  // namespace plexrl::nodemgr::policy::test
