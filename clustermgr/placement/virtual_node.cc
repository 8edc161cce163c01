#include "clustermgr/placement/virtual_node.h"

#include <algorithm>
#include <bit>

#include "nodemgr/policy/cost.h"

namespace plexrl::clustermgr::placement {

namespace policy = nodemgr::policy;

VirtualNode::VirtualNode(const policy::Config& config, const MoveModel& moves,
                         const std::vector<std::int64_t>& usable_bytes, std::uint64_t seed)
    : moves_(moves), seed_(seed) {
  state_.config = config;
  std::vector<policy::Event> events;
  for (std::size_t gpu = 0; gpu < usable_bytes.size(); ++gpu) {
    events.push_back(policy::GpuChanged{static_cast<int>(gpu), usable_bytes[gpu], false});
  }
  policy::step(state_, events, Instant{0}, seed_);
}

GangId VirtualNode::add(const VirtualGang& gang, Instant now) {
  GangId id{next_gang_++};
  Live& live = gangs_[id];
  live.gang = gang;
  pending_.push_back(policy::GangChanged{id, gang.name, gang.priority, gang.max_wait, gang.gpus});
  for (const auto& [gpu, info] : state_.gpus) {
    if ((gang.gpus & policy::gpu_bit(gpu)) != 0) memory_event(id, live, gpu, 0);
  }
  pending_at_ = now;
  return id;
}

void VirtualNode::remove(GangId gang, Instant now) {
  gangs_.erase(gang);
  pending_.push_back(policy::GangGone{gang});
  pending_at_ = now;
}

void VirtualNode::memory_event(GangId id, const Live& live, int gpu, std::int64_t resident) {
  pending_.push_back(
      policy::MemoryChanged{id, gpu, live.gang.pageable_bytes, live.gang.fixed_bytes, resident});
}

void VirtualNode::submit(GangId id, Duration work, Instant now) {
  Live& live = gangs_.at(id);
  live.busy = true;
  live.work = live.left = std::max(work, Duration{1});
  const policy::Gang* gang = state_.find(id);
  if (gang != nullptr && gang->phase == policy::Phase::kRunning) {
    pending_.push_back(policy::ActivityEdge{id, true, now});
    go_on(id, live, now);
  } else {
    wait(id, live, now);
  }
  pending_at_ = now;
}

GangTotals VirtualNode::totals(GangId gang, Instant now) const {
  const Live& live = gangs_.at(gang);
  GangTotals totals = live.totals;
  if (live.runs) totals.worked += now - live.runs_since;
  if (live.waits) totals.waited += now - live.waits_since;
  return totals;
}

Instant VirtualNode::next() const {
  Instant at = std::min(pending_at_, wake_at_);
  return queue_.empty() ? at : std::min(at, queue_.top().at);
}

void VirtualNode::advance(Instant now, std::vector<Finished>& finished) {
  while (!queue_.empty() && queue_.top().at <= now) {
    Later what = queue_.top();
    queue_.pop();
    happen(what, now, finished);
  }
  policy::StepResult result = policy::step(state_, pending_, now, seed_ + order_);
  pending_.clear();
  pending_at_ = kNever;
  ++events_;
  wake_at_ = result.wake_at;
  for (const policy::Decision& decision : result.decisions) carry_out(decision, now);
  go_on_loading(now);
  if (!pending_.empty()) pending_at_ = now;
}

void VirtualNode::later(Instant at, What what, GangId gang, std::uint64_t number, int gpu,
                        std::int64_t bytes, Duration took) {
  queue_.push({at, order_++, what, gang, number, gpu, bytes, took});
}

void VirtualNode::wait(GangId id, Live& live, Instant now) {
  live.waits = true;
  live.waits_since = now;
  pending_.push_back(policy::WantsChanged{id, true, now});
}

void VirtualNode::go_on(GangId id, Live& live, Instant now) {
  if (live.waits) {
    live.totals.waited += now - live.waits_since;
    live.totals.longest_wait = std::max(live.totals.longest_wait, now - live.waits_since);
    live.waits = false;
  }
  if (!live.busy) return;
  live.runs = true;
  live.runs_since = now;
  later(now + live.left, What::kBurstEnd, id, ++live.life);
}

/// The gate closes: what is left of the burst runs after the next grant.
void VirtualNode::pause(Live& live, Instant now) {
  if (!live.runs) return;
  live.runs = false;
  Duration ran = now - live.runs_since;
  live.totals.worked += ran;
  live.left = std::max(Duration{1}, live.left - ran);
  ++live.life;
}

void VirtualNode::prefetch(Live& live, const policy::Decision& decision, Instant now) {
  const double rate = std::min(moves_.in_bytes_per_s, decision.bytes_per_s);
  const Duration took = moves_.in_fixed + from_seconds(static_cast<double>(decision.bytes) / rate);
  const Later end{now + took, order_++,     What::kPrefetched, decision.gang,
                  0,          decision.gpu, decision.bytes,    took};
  live.prefetches.insert_or_assign(decision.gpu, end);
  queue_.push(end);
}

std::map<int, std::int64_t> VirtualNode::end_prefetches(GangId id, Live& live, Instant now) {
  std::map<int, std::int64_t> came;
  for (const auto& [gpu, end] : std::exchange(live.prefetches, {})) {
    const double left = static_cast<double>((end.at - now).count()) /
                        static_cast<double>(std::max<std::int64_t>(1, end.took.count()));
    came[gpu] =
        static_cast<std::int64_t>(static_cast<double>(end.bytes) * std::clamp(1 - left, 0.0, 1.0));
    live.totals.in_bytes += came[gpu];
    memory_event(id, live, gpu, state_.find(id)->memory[gpu].resident + came[gpu]);
  }
  return came;
}

void VirtualNode::load(GangId id, Live& live, Instant now) {
  std::int64_t most = 0;
  std::int64_t in_all = 0;
  std::map<int, std::int64_t> came = end_prefetches(id, live, now);
  for (const auto& [gpu, memory] : state_.find(id)->memory) {
    const std::int64_t missing = memory.missing() - came[gpu];
    most = std::max(most, missing);
    in_all += missing;
  }
  live.totals.in_bytes += in_all;
  Duration took = moves_.in_fixed + from_seconds(static_cast<double>(most) / moves_.in_bytes_per_s);
  live.awaits_room.reset();
  const Later end{now + took, order_++, What::kLoaded, id, ++live.loads, 0, most, took};
  if (moves_.at_once || has_room(id)) {
    queue_.push(end);
  } else {
    live.awaits_room = end;
  }
}

bool VirtualNode::has_room(GangId id) {
  const auto& memory = state_.find(id)->memory;
  return std::all_of(memory.begin(), memory.end(), [&](const auto& entry) {
    return entry.second.lacking() <= std::max<std::int64_t>(0, state_.free_bytes(entry.first));
  });
}

void VirtualNode::end_load(GangId id, Live& live, const Later& what) {
  if (!has_room(id)) {
    live.awaits_room = what;
    return;
  }
  for (const auto& [gpu, memory] : state_.find(id)->memory) {
    memory_event(id, live, gpu, live.gang.pageable_bytes);
  }
  pending_.push_back(policy::GangLoaded{id, what.bytes, what.took});
}

/// Loads begin while others still leave. What comes in last waits for what leaves last.
void VirtualNode::go_on_loading(Instant now) {
  for (auto& [id, live] : gangs_) {
    if (!live.awaits_room || !has_room(id)) continue;
    const Later what = *live.awaits_room;
    live.awaits_room.reset();
    const auto last = static_cast<double>(std::min(what.bytes, policy::kExchangeUnit));
    const Duration rest = moves_.at_once ? from_seconds(last / moves_.in_bytes_per_s) : what.took;
    later(now + rest, What::kLoaded, id, what.number, 0, what.bytes, what.took);
  }
}

void VirtualNode::happen(const Later& what, Instant now, std::vector<Finished>& finished) {
  auto it = gangs_.find(what.gang);
  if (it == gangs_.end()) return;
  Live& live = it->second;
  switch (what.what) {
    case What::kBurstEnd:
      if (what.number != live.life) break;
      live.busy = live.runs = false;
      live.totals.worked += live.left;
      finished.push_back({what.gang, now, live.work});
      later(now + state_.config.grace, What::kIdleEdge, what.gang, live.life);
      break;
    case What::kIdleEdge:
      if (what.number == live.life && !live.busy) {
        pending_.push_back(policy::ActivityEdge{what.gang, false, now - state_.config.grace});
      }
      break;
    case What::kDrained:
      pending_.push_back(policy::GangDrained{what.gang, what.number});
      break;
    case What::kLoaded:
      if (what.number == live.loads) end_load(what.gang, live, what);
      break;
    case What::kPrefetched: {
      // One that was called off since is not there any more, or is another.
      auto prefetch = live.prefetches.find(what.gpu);
      const bool is_due = prefetch != live.prefetches.end() && prefetch->second.at <= now;
      if (is_due) end_prefetches(what.gang, live, now);
      break;
    }
    case What::kEvicted: {
      std::int64_t resident = state_.find(what.gang)->memory[what.gpu].resident;
      memory_event(what.gang, live, what.gpu, std::max<std::int64_t>(0, resident - what.bytes));
      pending_.push_back(policy::GangEvicted{what.gang, what.gpu, false, what.bytes, what.took});
      break;
    }
  }
}

void VirtualNode::carry_out(const policy::Decision& decision, Instant now) {
  auto it = gangs_.find(decision.gang);
  if (it == gangs_.end()) return;
  Live& live = it->second;
  switch (decision.kind) {
    case policy::Decision::Kind::kWithdraw:
      pause(live, now);
      later(now + moves_.drain, What::kDrained, decision.gang, decision.attempt);
      break;
    case policy::Decision::Kind::kRevoke:
      ++live.loads;
      live.awaits_room.reset();
      if (live.busy && !live.waits) {
        wait(decision.gang, live, now);
      } else if (live.busy) {
        pending_.push_back(policy::WantsChanged{decision.gang, true, live.waits_since});
      }
      break;
    case policy::Decision::Kind::kGrant:
      ++live.totals.grants;
      if (decision.run_now) {
        go_on(decision.gang, live, now);
      } else {
        load(decision.gang, live, now);
      }
      break;
    case policy::Decision::Kind::kRun:
    case policy::Decision::Kind::kReopen:
      go_on(decision.gang, live, now);
      break;
    case policy::Decision::Kind::kPrefetch:
      prefetch(live, decision, now);
      break;
    case policy::Decision::Kind::kEvict: {
      end_prefetches(decision.gang, live, now);
      Duration took = moves_.out_fixed +
                      from_seconds(static_cast<double>(decision.bytes) / moves_.out_bytes_per_s);
      live.totals.out_bytes += decision.bytes;
      later(now + took, What::kEvicted, decision.gang, 0, decision.gpu, decision.bytes, took);
      break;
    }
    case policy::Decision::Kind::kHang:
    case policy::Decision::Kind::kWait:
      break;
  }
}

}  // namespace plexrl::clustermgr::placement
