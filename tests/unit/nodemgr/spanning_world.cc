#include "tests/unit/nodemgr/spanning_world.h"

#include <algorithm>

namespace plexrl::nodemgr::spanning::test {

using policy::Decision;
using policy::GangId;
using policy::Phase;

namespace {
constexpr Duration kPoll = 50ms;
constexpr Duration kMove = 20ms;
}  // namespace

/// A process group: the part of a job on a node.
struct World::Rank {
  int node = 0;
  GangId gang{};
  bool alive = true;
  bool open = false;     ///< its gates
  bool waits = false;    ///< at its gate
  bool entered = false;  ///< its work of this round is on the GPU
};

struct World::Job {
  std::string name;
  SpanningHabit habit;
  std::map<int, Rank> ranks;
  int round = 0;
  bool computes = false;
  Duration left{0};
  std::optional<Instant> together;  ///< since when all run
  std::uint64_t life = 0;
  bool finished = false;
};

struct World::Local {
  LocalHabit habit;
  GangId gang{};
  bool open = false, busy = false;
  Duration left{0};
  Instant since{0};
  std::uint64_t life = 0;
  int bursts = 0;
};

struct World::Node {
  int index = 0;
  bool up = true;
  policy::State state;
  std::uint64_t life = 0;  ///< of its manager
  std::unique_ptr<NodeParts> parts;
  std::map<GangId, std::pair<Job*, Rank*>> ranks;
  std::map<GangId, Local*> locals;
  Instant wake = policy::kNever;  ///< the next that is planned
};

World::World(int nodes, int gpus, const Trouble& trouble, std::uint64_t seed)
    : trouble_(trouble), rng_(seed), gpus_(gpus) {
  for (int i = 0; i < nodes; ++i) {
    nodes_.push_back(std::make_unique<Node>());
    nodes_.back()->index = i;
    start_node(*nodes_.back());
  }
  start_coordinator();
  for (auto& node : nodes_) poll(*node);
  plan_deaths();
}

World::~World() = default;

Duration World::up_to(Duration most) {
  return most <= Duration{0}
             ? Duration{0}
             : Duration(std::uniform_int_distribution<std::int64_t>(0, most.count())(rng_));
}

void World::later(Duration in, std::function<void()> what) {
  queue_.push({now_ + in, order_++, std::move(what)});
}

void World::plan_deaths() {
  if (trouble_.coordinator_dies > Duration{0}) {
    later(up_to(2 * trouble_.coordinator_dies), [this] {
      if (!is_trouble()) return;
      kill_coordinator(up_to(trouble_.coordinator_away));
      plan_deaths();
    });
  }
  if (trouble_.node_dies <= Duration{0}) return;
  for (auto& node : nodes_) {
    const int index = node->index;
    for (Instant at = up_to(2 * trouble_.node_dies); at < trouble_.until;
         at += up_to(2 * trouble_.node_dies) + 1ms) {
      if (now_ == Instant{0})
        later(at, [this, index] { kill_node(index, up_to(trouble_.node_away)); });
    }
  }
}

void World::start_coordinator() {
  coordinator_.emplace(config_, ++generation_);
  for (const auto& [job, record] : store_) coordinator_->restore(record, now_);
}

void World::kill_coordinator(Duration away) {
  coordinator_.reset();
  later(away, [this] {
    if (!coordinator_) start_coordinator();
  });
}

void World::start_node(Node& node) {
  node.up = true;
  node.wake = policy::kNever;
  ++node.life;
  node.state = policy::State{};
  node.state.config.min_quantum = 50ms;
  node.state.config.max_wait = 30s;
  node.parts =
      std::make_unique<NodeParts>("n" + std::to_string(node.index), rng_() | 1, PartConfig{});
  std::vector<policy::Event> events;
  for (int gpu = 0; gpu < gpus_; ++gpu) events.push_back(policy::GpuChanged{gpu, 1'000'000, false});
  step(node, events);
  for (const auto& [gang, rank] : node.ranks) {
    node.parts->add(rank.first->name, static_cast<int>(rank.first->habit.parts.size()), now_);
  }
  for (const auto& [gang, rank] : node.ranks) describe(node, gang);
  for (const auto& [gang, local] : node.locals) describe(node, gang);
}

/// As processes come back to a manager: what has its gates open goes on with its lease.
void World::describe(Node& node, GangId id) {
  policy::GangChanged changed;
  changed.gang = id;
  std::int64_t bytes = 0;
  bool is_open = false, waits = false;
  if (const auto rank = node.ranks.find(id); rank != node.ranks.end()) {
    changed.job = rank->second.first->name;
    changed.gpus = rank->second.first->habit.parts.at(node.index);
    changed.spans = true;
    bytes = rank->second.first->habit.bytes;
    is_open = rank->second.second->open;
    waits = rank->second.second->waits = rank->second.first->computes && !is_open;
  } else {
    const Local& local = *node.locals.at(id);
    changed.job = "local" + std::to_string(static_cast<std::uint64_t>(id));
    changed.gpus = local.habit.gpus;
    bytes = local.habit.bytes;
    is_open = local.open;
    waits = local.busy && !local.open;
  }
  std::vector<policy::Event> events = {changed};
  for (int gpu = 0; gpu < gpus_; ++gpu) {
    if ((changed.gpus >> gpu & 1) != 0) {
      events.push_back(policy::MemoryChanged{id, gpu, bytes, 0, is_open ? bytes : 0});
    }
  }
  if (is_open) events.push_back(policy::GangAdopted{id, changed.gpus, false});
  if (waits) events.push_back(policy::WantsChanged{id, true, now_});
  step(node, events);
}

void World::kill_node(int index, Duration away) {
  Node& node = *nodes_[static_cast<std::size_t>(index)];
  if (!node.up) return;
  node.up = false;
  ++node.life;
  later(away, [this, &node] { start_node(node); });
}

void World::add(const std::string& name, const SpanningHabit& habit) {
  auto owned = std::make_unique<Job>();
  Job& job = *owned;
  job.name = name;
  job.habit = habit;
  jobs_[name] = std::move(owned);
  for (const auto& [index, gpus] : habit.parts) {
    job.ranks[index] = Rank{index, GangId{next_gang_++}};
    const int where = index;
    later(habit.starts - now_ + up_to(2s), [this, &job, where] {
      Node& node = *nodes_[static_cast<std::size_t>(where)];
      Rank& rank = job.ranks.at(where);
      if (!rank.alive) return;
      node.ranks[rank.gang] = {&job, &rank};
      if (!node.up) return;
      node.parts->add(job.name, static_cast<int>(job.habit.parts.size()), now_);
      describe(node, rank.gang);
    });
  }
  later(habit.starts - now_ + 3s, [this, &job] { begin_round(job); });
}

void World::add(const LocalHabit& habit) {
  locals_.push_back(std::make_unique<Local>());
  Local& local = *locals_.back();
  local.habit = habit;
  local.gang = GangId{next_gang_++};
  Node& node = *nodes_[static_cast<std::size_t>(habit.node)];
  node.locals[local.gang] = &local;
  describe(node, local.gang);
  later(up_to(1s), [this, &node, &local] {
    local.busy = true;
    local.left = local.habit.burst;
    if (local.open) {
      opened(node, local.gang);
    } else {
      want(node, local.gang, true);
    }
  });
}

void World::want(Node& node, GangId id, bool wants) {
  if (node.up) step(node, {policy::WantsChanged{id, wants, now_}});
}

void World::begin_round(Job& job) {
  if (job.finished) return;
  job.computes = true;
  job.left = job.habit.work;
  for (auto& [index, rank] : job.ranks) {
    if (!rank.alive) continue;
    Node& node = *nodes_[static_cast<std::size_t>(index)];
    if (rank.open) {
      rank.entered = true;
      if (node.up) step(node, {policy::ActivityEdge{rank.gang, true, now_}});
    } else {
      rank.waits = true;
      want(node, rank.gang, true);
    }
  }
  look_at_round(job);
}

void World::look_at_round(Job& job) {
  const bool all = job.computes && std::all_of(job.ranks.begin(), job.ranks.end(), [](auto& entry) {
                     return entry.second.alive && entry.second.open;
                   });
  if (all == job.together.has_value()) return;
  ++job.life;
  if (!all) {
    job.left -= std::min(job.left, now_ - *job.together);
    job.together.reset();
    return;
  }
  job.together = now_;
  later(job.left, [this, &job, life = job.life] {
    if (life != job.life) return;
    job.together.reset();
    ++job.life;
    job.computes = false;
    ++job.round;
    for (auto& [index, rank] : job.ranks) {
      rank.entered = false;
      Node& node = *nodes_[static_cast<std::size_t>(index)];
      if (node.up) step(node, {policy::ActivityEdge{rank.gang, false, now_}});
    }
    if (job.round < job.habit.rounds) {
      later(job.habit.gap / 2 + up_to(job.habit.gap), [this, &job] { begin_round(job); });
    } else {
      kill_job(job.name);
    }
  });
}

void World::kill_job(const std::string& name) {
  Job& job = *jobs_.at(name);
  job.finished = true;
  for (auto& [index, rank] : job.ranks) {
    const int where = index;
    later(up_to(3s), [this, &job, where] {
      Rank& rank = job.ranks.at(where);
      Node& node = *nodes_[static_cast<std::size_t>(where)];
      rank.alive = false;
      rank.open = false;
      node.ranks.erase(rank.gang);
      look_at_round(job);
      if (!node.up) return;
      node.parts->remove(job.name);
      step(node, {policy::GangGone{rank.gang}});
    });
  }
}

/// Its gates have opened.
void World::opened(Node& node, GangId id) {
  if (const auto found = node.ranks.find(id); found != node.ranks.end()) {
    auto [job, rank] = found->second;
    rank->open = true;
    rank->waits = false;
    rank->entered = job->computes;
    Part* const part = node.parts->find(job->name);
    if (part != nullptr && part->order().verb == Verb::kStart) {
      // No part runs before all have had their lease for this slot.
      for (const auto& [index, other] : job->ranks) {
        if (!other.alive || acknowledged_[part->order().slot].contains(index)) continue;
        const Node& there = *nodes_[static_cast<std::size_t>(index)];
        if (!there.ranks.contains(other.gang)) continue;
        breaches_.push_back(job->name + " runs on node " + std::to_string(node.index) +
                            " before node " + std::to_string(index) + " had its lease, at " +
                            std::to_string(now_.count()));
      }
    }
    if (!job->computes && node.up)
      later(5ms, [this, &node, id] {
        const auto it = node.ranks.find(id);
        if (it == node.ranks.end() || it->second.first->computes || !node.up) return;
        step(node, {policy::ActivityEdge{id, false, now_}});
      });
    look_at_round(*job);
    return;
  }
  Local& local = *node.locals.at(id);
  local.open = true;
  if (!local.busy) return;
  local.since = now_;
  later(local.left, [this, &node, &local, life = ++local.life] {
    if (life != local.life) return;
    local.busy = false;
    ++local.bursts;
    if (node.up) step(node, {policy::ActivityEdge{local.gang, false, now_}});
    later(local.habit.gap, [this, &node, &local] {
      local.busy = true;
      local.left = local.habit.burst;
      if (local.open) {
        if (node.up) step(node, {policy::ActivityEdge{local.gang, true, now_}});
        opened(node, local.gang);
      } else {
        want(node, local.gang, true);
      }
    });
  });
}

void World::closed(Node& node, GangId id) {
  if (const auto found = node.ranks.find(id); found != node.ranks.end()) {
    found->second.second->open = false;
    look_at_round(*found->second.first);
    return;
  }
  Local& local = *node.locals.at(id);
  if (local.open && local.busy) {
    local.left -= std::min(local.left, now_ - local.since);
    ++local.life;
  }
  local.open = false;
}

void World::drain(Node& node, const Decision& decision) {
  bool fails = false;
  Job* job = nullptr;
  if (const auto found = node.ranks.find(decision.gang); found != node.ranks.end()) {
    job = found->second.first;
    const Rank& rank = *found->second.second;
    // What waits for a peer that does not run can't be cut.
    fails = rank.entered && rank.open && (!job->together || chance(job->habit.refuses));
  }
  const auto after = fails ? node.state.config.drain_budget : Duration(1ms) + up_to(5ms);
  if (!fails) closed(node, decision.gang);
  later(after, [this, &node, decision, fails, life = node.life] {
    if (!node.up || node.life != life) return;
    if (fails) {
      step(node, {policy::GangNotDrained{decision.gang, decision.attempt, "waits for a peer"}});
    } else {
      step(node, {policy::GangDrained{decision.gang, decision.attempt}});
    }
  });
}

void World::carry_out(Node& node, const Decision& decision) {
  const GangId id = decision.gang;
  const bool is_rank = node.ranks.contains(id);
  if (!is_rank && !node.locals.contains(id)) return;
  const std::int64_t bytes =
      is_rank ? node.ranks.at(id).first->habit.bytes : node.locals.at(id)->habit.bytes;
  switch (decision.kind) {
    case Decision::Kind::kWithdraw:
      return drain(node, decision);
    case Decision::Kind::kReopen:
      return opened(node, id);
    case Decision::Kind::kRevoke: {
      closed(node, id);
      const bool waits = is_rank ? node.ranks.at(id).first->computes : node.locals.at(id)->busy;
      if (is_rank) node.ranks.at(id).second->waits = waits;
      if (waits) later(0ms, [this, &node, id] { want(node, id, true); });
      return;
    }
    case Decision::Kind::kGrant: {
      if (decision.run_now) return opened(node, id);
      const std::uint64_t attempt = node.state.find(id)->attempt;
      later(kMove, [this, &node, id, bytes, attempt, life = node.life] {
        if (!node.up || node.life != life) return;
        const policy::Gang* const gang = node.state.find(id);
        if (gang == nullptr || gang->phase != Phase::kLoading || gang->attempt != attempt) return;
        std::vector<policy::Event> events;
        for (int gpu = 0; gpu < gpus_; ++gpu) {
          if ((gang->held >> gpu & 1) != 0) {
            events.push_back(policy::MemoryChanged{id, gpu, bytes, 0, bytes});
          }
        }
        events.push_back(policy::GangLoaded{id, bytes, kMove});
        step(node, events);
      });
      return;
    }
    case Decision::Kind::kRun:
      return opened(node, id);
    case Decision::Kind::kEvict:
      later(kMove, [this, &node, decision, bytes, life = node.life] {
        if (!node.up || node.life != life) return;
        const policy::Gang* const gang = node.state.find(decision.gang);
        if (gang == nullptr) return;
        const std::int64_t left =
            std::max<std::int64_t>(0, gang->memory.at(decision.gpu).resident - decision.bytes);
        step(node,
             {policy::MemoryChanged{decision.gang, decision.gpu, bytes, 0, left},
              policy::GangEvicted{decision.gang, decision.gpu, false, decision.bytes, kMove}});
      });
      return;
    default:
      return;
  }
}

/// Tells the policy what its parts may do now.
void World::stand(Node& node) {
  std::vector<policy::Event> events;
  for (auto& [name, part] : node.parts->all()) {
    const auto rank = std::find_if(node.ranks.begin(), node.ranks.end(), [&](const auto& entry) {
      return entry.second.first->name == name;
    });
    if (rank == node.ranks.end()) continue;
    const policy::Gang* const gang = node.state.find(rank->first);
    if (gang == nullptr) continue;
    const PartState state = state_of(gang);
    part.look(state, now_);
    if (part.order().verb == Verb::kCommit && state.loaded) {
      acknowledged_[part.order().slot].insert(node.index);
    }
    wake(node, part.wake_at(now_));
    if (gang->standing != part.standing(now_) || gang->slot_over != part.is_over(now_)) {
      events.push_back(
          policy::StandingChanged{rank->first, part.standing(now_), part.is_over(now_)});
    }
  }
  if (!events.empty()) step(node, events);
}

void World::step(Node& node, std::vector<policy::Event> events) {
  policy::StepResult result = policy::step(node.state, events, now_, order_);
  for (const Decision& decision : result.decisions) carry_out(node, decision);
  wake(node, result.wake_at);
  if (node.parts) stand(node);
}

void World::wake(Node& node, Instant at) {
  if (at == policy::kNever || (node.wake > now_ && node.wake <= at)) return;
  node.wake = at;
  later(at - now_, [this, &node, life = node.life] {
    if (node.up && node.life == life) step(node);
  });
}

void World::send(std::function<void()> arrive) {
  if (is_trouble() && chance(trouble_.lost)) return;
  later(1ms + up_to(is_trouble() ? trouble_.delay : 5ms), arrive);
  if (is_trouble() && chance(trouble_.repeated)) later(up_to(2 * trouble_.delay), arrive);
}

void World::poll(Node& node) {
  later(kPoll, [this, &node] { poll(node); });
  if (!node.up) return;
  const NodeReport report = node.parts->report(
      [&](const std::string& name) {
        for (const auto& [gang, rank] : node.ranks) {
          if (rank.first->name != name) continue;
          PartState state = state_of(node.state.find(gang));
          state.wants = rank.second->waits && !rank.second->open;
          return state;
        }
        return PartState{};
      },
      now_);
  send([this, index = node.index, report] { deliver(index, report); });
}

bool World::store() {
  while (const auto record = coordinator_->next_record()) {
    const bool dies = is_trouble() && chance(trouble_.dies_at_store);
    if (dies && chance(0.5)) {
      kill_coordinator(up_to(trouble_.coordinator_away));
      return false;
    }
    if (record->stage == SlotRecord::Stage::kForgotten) {
      store_.erase(record->job);
    } else {
      store_[record->job] = *record;
    }
    if (dies) {
      kill_coordinator(up_to(trouble_.coordinator_away));
      return false;
    }
    coordinator_->stored(*record, true, now_);
  }
  return true;
}

void World::deliver(int index, const NodeReport& report) {
  if (!coordinator_) return;
  coordinator_->report(report, now_);
  if (!store()) return;
  const NodeOrders orders = coordinator_->orders(report.node);
  send([this, index, orders] {
    Node& node = *nodes_[static_cast<std::size_t>(index)];
    if (!node.up || !node.parts->hear(orders, now_)) return;
    step(node);
  });
}

void World::check() {
  for (const auto& node : nodes_) {
    // Gates that are open, whatever the manager knows.
    GpuMask open = 0;
    const auto count = [&](GpuMask gpus, const std::string& who) {
      if ((open & gpus) != 0) {
        breaches_.push_back("two run on a GPU of node " + std::to_string(node->index) + ": " + who +
                            " is the second, at " + std::to_string(now_.count()));
      }
      open |= gpus;
    };
    for (const auto& [gang, rank] : node->ranks) {
      if (rank.second->open) count(rank.first->habit.parts.at(node->index), rank.first->name);
    }
    for (const auto& [gang, local] : node->locals) {
      if (local->open) count(local->habit.gpus, "a local gang");
    }
  }
}

void World::run_until(Instant end) {
  while (!queue_.empty() && queue_.top().at <= end) {
    now_ = queue_.top().at;
    const auto what = queue_.top().what;
    queue_.pop();
    what();
    check();
    if (watch) watch();
  }
  now_ = end;
}

int World::rounds(const std::string& job) const { return jobs_.at(job)->round; }
bool World::has_finished(const std::string& job) const {
  return jobs_.at(job)->round >= jobs_.at(job)->habit.rounds;
}
int World::bursts(int local) const { return locals_[static_cast<std::size_t>(local)]->bursts; }
bool World::runs(const std::string& job, int node) const {
  return jobs_.at(job)->ranks.at(node).open;
}
const policy::Gang* World::part(const std::string& job, int node) const {
  const auto& gangs = nodes_[static_cast<std::size_t>(node)]->state.gangs;
  const auto it = gangs.find(jobs_.at(job)->ranks.at(node).gang);
  return it == gangs.end() ? nullptr : &it->second;
}

}  // namespace plexrl::nodemgr::spanning::test
