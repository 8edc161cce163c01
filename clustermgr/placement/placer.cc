#include "clustermgr/placement/placer.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace plexrl::clustermgr::placement {
namespace {

/// The load estimate spreads the slowdown evenly, so it is not refused by a little.
constexpr double kClearlyTooMuch = 1.1;

/// Slots per gang whose members' other slots are looked at too.
constexpr std::size_t kMostNeighbours = 400;

constexpr char kTooLarge[] = "the group would be too large";
constexpr char kBeyondBound[] = "a member would be slowed down beyond its bound";

/// Choices told of that even an even share of time rules out.
constexpr std::size_t kMostHopeless = 4;

/// What is told of slots that can't be joined; the last one is always among it.
constexpr std::size_t kMostObstacles = 16;

/// Choices looked at after the best so far, before it is taken.
constexpr int kTryOn = 3;

int gpus_of(const JobProfile& job) {
  int sum = 0;
  for (const GangProfile& gang : job.gangs) sum += gang.gpus;
  return sum;
}

int opened_gpus(const JobProfile& job, const std::vector<int>& slots) {
  int sum = 0;
  for (std::size_t g = 0; g < slots.size(); ++g) {
    if (slots[g] < 0) sum += job.gangs[g].gpus;
  }
  return sum;
}

/// Keeps both ends of a list of slots: the fullest, where a gang fits best, and the emptiest, where
/// it most likely fits.
void shorten(std::vector<int>& slots, std::size_t most) {
  if (slots.size() <= most) return;
  auto begin = slots.begin() + static_cast<long>(most - most / 2);
  slots.erase(begin, slots.end() - static_cast<long>(most / 2));
}

bool names(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

Placer::Placer(PlacerConfig config) : config_(config), predictor_(config.predictor) {}

void Placer::learn(const JobProfile& job) {
  auto placed = placed_.find(job.id);
  if (placed == placed_.end()) return;
  // What was promised at its placement stays; what it was seen to do is new.
  JobProfile newer = predictor_.profile(job.id);
  for (std::size_t g = 0; g < newer.gangs.size() && g < job.gangs.size(); ++g) {
    newer.gangs[g].bursts = job.gangs[g].bursts;
  }
  predictor_.learn(std::move(newer));
  for (std::size_t g = 0; g < placed->second.slots.size(); ++g) {
    double load = load_of(job.id, g);
    slots_.add_load(placed->second.slots[g], load - placed->second.loads[g]);
    placed->second.loads[g] = load;
  }
}

/// Share of a slot's time that the gang needs if its job is slowed down as far as it accepts; all
/// of it while nothing is known.
double Placer::load_of(JobId id, std::size_t gang) const {
  const JobShape& shape = predictor_.shape(id);
  if (!shape.known && !config_.share_unprofiled) return 1;
  return (shape.known ? shape.duty(gang) : 1) / predictor_.profile(id).max_slowdown;
}

double Placer::limit_of(JobId id) const {
  const JobProfile& job = predictor_.profile(id);
  double limit = 1 + (job.max_slowdown - 1) * (1 - config_.reserve);
  auto placed = placed_.find(id);
  if (placed == placed_.end()) return limit;
  for (SlotId slot : placed->second.slots) {
    for (auto [node, gpus] : slots_.at(slot).parts) {
      const NodeInfo& info = slots_.node(node);
      if (info.owner == job.team) limit = std::min(limit, info.owner_max_slowdown);
    }
  }
  return limit;
}

/// Empty, or why a gang of the job can't join a slot of its size.
std::string Placer::why_not_joinable(const JobProfile& job, std::size_t gang, SlotId id) const {
  const Slot& slot = slots_.at(id);
  if (slot.load + load_of(job.id, gang) > 1.0) return "slots of its size have no time left";
  if (static_cast<int>(slot.members.size()) >= config_.max_sharers) {
    return "slots of its size have their most sharers";
  }
  std::string why = slots_.obstacle(id, job.gangs[gang]);
  if (!why.empty()) return why;
  for (auto [member, index] : slot.members) {
    const JobProfile& other = predictor_.profile(member);
    if (names(job.apart_from, other.name) || names(other.apart_from, job.name)) {
      return "must be apart from a job there";
    }
  }
  return "";
}

/// Slots that a gang of the job may join, by how much of them is taken: the fullest that has room
/// comes first.
std::vector<int> Placer::joinable(const JobProfile& job, std::size_t gang_index,
                                  std::vector<Obstacle>& obstacles) const {
  const GangProfile& gang = job.gangs[gang_index];
  std::vector<std::pair<double, int>> found;
  const std::vector<Slot>& all = slots_.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Slot& slot = all[i];
    if (!slot.open || slot.gpus != gang.gpus || slot.pool != gang.pool) continue;
    const SlotId id{static_cast<std::uint32_t>(i)};
    std::string why = why_not_joinable(job, gang_index, id);
    if (why.empty()) {
      found.emplace_back(-slot.load, static_cast<int>(i));
    } else if (obstacles.size() < kMostObstacles) {
      obstacles.push_back({id, std::move(why)});
    } else {
      obstacles.back() = {id, std::move(why)};
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<int> slots;
  for (auto [key, slot] : found) slots.push_back(slot);
  return slots;
}

/// Combinations of slots for its gangs: those with the same neighbours in each, which interlock
/// best, then the fullest and the emptiest ones with each other and with new slots.
std::vector<Placer::Option> Placer::options_for(const JobProfile& job,
                                                std::vector<Obstacle>& obstacles) {
  const std::size_t gangs = job.gangs.size();
  std::vector<std::vector<int>> joinable_slots(gangs);
  std::vector<bool> can_open(gangs);
  for (std::size_t g = 0; g < gangs; ++g) {
    can_open[g] = slots_.can_open(job.gangs[g]);
    if (predictor_.shape(job.id).known || (config_.share_unprofiled && !can_open[g])) {
      joinable_slots[g] = joinable(job, g, obstacles);
    }
  }

  std::vector<std::vector<bool>> is_joinable(gangs, std::vector<bool>(slots_.all().size()));
  for (std::size_t g = 0; g < gangs; ++g) {
    for (int slot : joinable_slots[g]) is_joinable[g][static_cast<std::size_t>(slot)] = true;
    shorten(joinable_slots[g], kMostNeighbours);
  }

  std::set<std::vector<int>> chosen;
  auto consider_neighbours = [&](int slot) {
    for (auto [id, index] : slots_.all()[static_cast<std::size_t>(slot)].members) {
      std::vector<int> combination;
      const std::vector<SlotId>& theirs = placed_.at(id).slots;
      for (std::size_t g = 0; g < gangs; ++g) {
        int match = -1;
        for (SlotId other : theirs) {
          int candidate = static_cast<int>(other);
          bool taken =
              std::find(combination.begin(), combination.end(), candidate) != combination.end();
          if (!taken && is_joinable[g][static_cast<std::size_t>(candidate)]) {
            match = candidate;
            break;
          }
        }
        combination.push_back(match);
      }
      chosen.insert(combination);
    }
  };
  const auto most = static_cast<std::size_t>(config_.candidates);
  for (std::size_t g = 0; g < gangs; ++g) {
    for (int slot : joinable_slots[g]) consider_neighbours(slot);
    shorten(joinable_slots[g], most);
    joinable_slots[g].push_back(-1);
  }
  // The product of all gangs' lists, bounded.
  std::vector<std::vector<int>> product = {{}};
  for (std::size_t g = 0; g < gangs; ++g) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& combination : product) {
      for (int slot : joinable_slots[g]) {
        if (longer.size() >= most * most * 2) break;
        bool taken = slot >= 0 &&
                     std::find(combination.begin(), combination.end(), slot) != combination.end();
        if (taken) continue;
        longer.push_back(combination);
        longer.back().push_back(slot);
      }
    }
    product = std::move(longer);
  }
  for (std::vector<int>& combination : product) chosen.insert(std::move(combination));
  chosen.insert(std::vector<int>(gangs, -1));

  std::vector<Option> options;
  for (const std::vector<int>& slots : chosen) {
    bool possible = true;
    for (std::size_t g = 0; g < gangs; ++g) possible &= slots[g] >= 0 || can_open[g];
    if (possible) options.push_back({slots, 0});
  }
  return options;
}

/// The job and everybody who shares with it, directly or through others.
Group Placer::group_with(const JobProfile& job, const std::vector<int>& slots,
                         bool& too_large) const {
  Group group;
  std::vector<std::pair<int, int>> numbers;  // slot -> number in the group
  int next = 0;
  auto number_of = [&](int slot) {
    for (auto [known, number] : numbers) {
      if (known == slot) return number;
    }
    numbers.emplace_back(slot, next);
    return next++;
  };
  group.jobs.push_back(job.id);
  group.slots.emplace_back();
  for (int slot : slots) group.slots[0].push_back(slot >= 0 ? number_of(slot) : next++);
  too_large = false;
  for (std::size_t seen = 0; seen < numbers.size() && !too_large; ++seen) {
    int slot = numbers[seen].first;
    for (auto [id, index] : slots_.all()[static_cast<std::size_t>(slot)].members) {
      if (std::find(group.jobs.begin(), group.jobs.end(), id) != group.jobs.end()) continue;
      if (static_cast<int>(group.jobs.size()) >= config_.max_group) {
        too_large = true;
        break;
      }
      group.jobs.push_back(id);
      group.slots.emplace_back();
      for (SlotId theirs : placed_.at(id).slots) {
        group.slots.back().push_back(number_of(static_cast<int>(theirs)));
      }
    }
  }
  return group;
}

double Placer::cost_of(const JobProfile& job, const std::vector<int>& slots, const Group& group,
                       const Prediction& prediction) const {
  double cost = config_.gpu_price * opened_gpus(job, slots);
  for (std::size_t i = 0; i < group.jobs.size(); ++i) {
    double before = i == 0 ? 1 : placed_.at(group.jobs[i]).predicted;
    double gpus = gpus_of(predictor_.profile(group.jobs[i]));
    cost += config_.slowdown_price * gpus * std::max(0.0, prediction.slowdown[i] - before);
  }
  return cost;
}

/// A round takes as long as the longest member alone, or as all work of one slot. If every member
/// accepts that, a closed loop settles into it.
bool Placer::holds_in_turns(const Group& group) const {
  double round = 0;
  double least = 1e18;
  std::map<int, double> work;
  for (std::size_t i = 0; i < group.jobs.size(); ++i) {
    const JobShape& shape = predictor_.shape(group.jobs[i]);
    if (!shape.known) return false;
    round = std::max(round, shape.period_s);
    least = std::min(least, shape.period_s * limit_of(group.jobs[i]));
    for (std::size_t g = 0; g < group.slots[i].size(); ++g) {
      round = std::max(round, work[group.slots[i][g]] += shape.gangs[g].work_s);
    }
  }
  return round <= least;
}

bool Placer::acceptable(const Group& group, const Prediction& prediction, double& worst) const {
  worst = 0;
  for (std::size_t i = 0; i < group.jobs.size(); ++i) {
    worst = std::max(worst, prediction.slowdown[i] / limit_of(group.jobs[i]));
  }
  return worst <= 1 + 1e-9;
}

Choice Placer::judge(const JobProfile& job, const Option& option, int& replays_left,
                     Prediction& result, Group& group) {
  Choice choice;
  choice.slots = option.slots;
  bool too_large = false;
  group = group_with(job, option.slots, too_large);
  if (too_large) {
    choice.refused = kTooLarge;
    return choice;
  }
  if (std::optional<Prediction> known = predictor_.cached(group)) {
    result = *std::move(known);
  } else if (group.jobs.size() == 1) {
    result.slowdown = {1.0};
    result.replayed = predictor_.shape(job.id).known;
  } else if (replays_left > 0) {
    --replays_left;
    result = predictor_.predict(group);
  } else {
    result = predictor_.estimate(group);
    note_unreplayed(group);
  }
  choice.replayed = result.replayed;
  choice.cost = cost_of(job, option.slots, group, result);
  if (!acceptable(group, result, choice.worst_slowdown)) {
    choice.refused = kBeyondBound;
  }
  return choice;
}

PlaceDecision Placer::place(const JobProfile& job) {
  PlaceDecision decision;
  predictor_.learn(job);
  auto quota = config_.team_gpus.find(job.team);
  if (quota != config_.team_gpus.end() && team_used_[job.team] + gpus_of(job) > quota->second) {
    decision.reason = "quota of its team is used up";
    decision.figures = {{"quota_gpus", static_cast<double>(quota->second)},
                        {"used_gpus", static_cast<double>(team_used_[job.team])}};
    return decision;
  }
  std::vector<Option> options = options_for(job, decision.obstacles);
  std::string obstacle = !decision.obstacles.empty() ? decision.obstacles.back().why
                         : options.empty()           ? "too few free GPUs"
                                                     : "";
  // What each would cost if members only had to share time.
  std::vector<Option> possible;
  for (Option& option : options) {
    bool too_large = false;
    Group group = group_with(job, option.slots, too_large);
    const char* hopeless = too_large ? kTooLarge : nullptr;
    double worst = 0;
    if (!too_large) {
      const Prediction least = predictor_.estimate_load(group);
      if (!acceptable(group, least, worst) && worst > kClearlyTooMuch) hopeless = kBeyondBound;
      option.optimistic = cost_of(job, option.slots, group, least);
    }
    if (hopeless != nullptr) {
      obstacle = hopeless;
      if (decision.choices.size() >= kMostHopeless) continue;
      decision.choices.push_back({.slots = option.slots,
                                  .cost = option.optimistic,
                                  .worst_slowdown = worst,
                                  .refused = hopeless});
      continue;
    }
    option.opened_gpus = opened_gpus(job, option.slots);
    option.in_turns = holds_in_turns(group);
    possible.push_back(std::move(option));
  }
  // What a replay will most likely confirm comes first.
  std::stable_sort(possible.begin(), possible.end(), [](const Option& a, const Option& b) {
    return std::tuple(a.opened_gpus, !a.in_turns, a.optimistic) <
           std::tuple(b.opened_gpus, !b.in_turns, b.optimistic);
  });

  int replays_left = config_.replays;
  int tried_since_best = 0;
  const Choice* best = nullptr;
  Choice best_choice;
  Group best_group;
  Prediction best_prediction;
  for (const Option& option : possible) {
    if (best != nullptr && config_.gpu_price * option.opened_gpus >= best_choice.cost) break;
    if (best != nullptr &&
        (tried_since_best++ >= kTryOn || option.optimistic >= best_choice.cost)) {
      continue;
    }
    Prediction prediction;
    Group group;
    Choice choice = judge(job, option, replays_left, prediction, group);
    if (decision.choices.size() < 8 || choice.refused.empty()) decision.choices.push_back(choice);
    if (!choice.refused.empty()) {
      obstacle = choice.refused;
      continue;
    }
    if (best != nullptr && choice.cost >= best_choice.cost) continue;
    best_choice = choice;
    best = &best_choice;
    tried_since_best = 0;
    best_group = std::move(group);
    best_prediction = std::move(prediction);
  }
  decision.figures = {{"options", static_cast<double>(possible.size())},
                      {"replays", static_cast<double>(config_.replays - replays_left)}};
  if (best == nullptr) {
    decision.reason = obstacle.empty() ? "no slot fits" : obstacle;
    predictor_.forget(job.id);
    return decision;
  }
  commit(job, best_choice, best_group, best_prediction, decision);
  return decision;
}

void Placer::commit(const JobProfile& job, const Choice& choice, const Group& group,
                    const Prediction& prediction, PlaceDecision& decision) {
  std::vector<SlotId> slots;
  for (std::size_t g = 0; g < job.gangs.size(); ++g) {
    if (choice.slots[g] >= 0) {
      slots.push_back(SlotId{static_cast<std::uint32_t>(choice.slots[g])});
    } else {
      slots.push_back(slots_.open(job.gangs[g]));
      decision.opened.push_back(slots.back());
    }
  }
  occupy(job, slots);
  for (std::size_t i = 0; i < group.jobs.size(); ++i) {
    placed_.at(group.jobs[i]).predicted = prediction.slowdown[i];
  }
  decision.placed = true;
  decision.slots = std::move(slots);
  const bool known = predictor_.shape(job.id).known;
  decision.reason =
      group.jobs.size() > 1
          ? (known ? "shares: least marginal cost" : "no history, no free GPUs: shares")
          : (known ? "on its own: no cheaper place" : "no history: profiled on its own");
  decision.figures.push_back({"marginal_cost", choice.cost});
  decision.figures.push_back({"predicted_slowdown", prediction.slowdown[0]});
  decision.figures.push_back({"group_jobs", static_cast<double>(group.jobs.size())});
  decision.figures.push_back({"opened_gpus", static_cast<double>(opened_gpus(job, choice.slots))});
  decision.figures.push_back({"replayed", choice.replayed ? 1.0 : 0.0});
}

void Placer::occupy(const JobProfile& job, const std::vector<SlotId>& slots) {
  Placed& placed = placed_[job.id];
  for (std::size_t g = 0; g < job.gangs.size(); ++g) {
    const double load = load_of(job.id, g);
    slots_.join(slots[g], job.id, static_cast<int>(g), job.gangs[g], load);
    placed.loads.push_back(load);
  }
  placed.slots = slots;
  team_used_[job.team] += gpus_of(job);
}

void Placer::start_over() {
  slots_ = Slots();
  placed_.clear();
  team_used_.clear();
}

void Placer::adopt(const JobProfile& job, const std::vector<SlotId>& slots) {
  predictor_.learn(job);
  occupy(job, slots);
  std::vector<int> numbers;
  for (const SlotId slot : slots) numbers.push_back(static_cast<int>(slot));
  bool too_large = false;
  const Group group = group_with(job, numbers, too_large);
  if (too_large) return;  // nobody joins it either, so nobody asks what they are predicted
  const std::optional<Prediction> replayed = predictor_.cached(group);
  const Prediction prediction = replayed ? *replayed : predictor_.estimate(group);
  for (std::size_t i = 0; i < group.jobs.size(); ++i) {
    placed_.at(group.jobs[i]).predicted = prediction.slowdown[i];
  }
}

void Placer::note_unreplayed(const Group& group) {
  constexpr std::size_t kMost = 64;
  // A replay is of some rounds of the slowest: so many of the fastest would take too long.
  constexpr double kMostRounds = 1000;
  Unreplayed one{group, {}};
  double longest = 0;
  double shortest = 1e18;
  for (const JobId id : group.jobs) {
    if (!predictor_.has_round(id)) return;
    one.profiles.push_back(predictor_.profile(id));
    longest = std::max(longest, predictor_.shape(id).period_s);
    shortest = std::min(shortest, predictor_.shape(id).period_s);
  }
  if (longest > kMostRounds * shortest) return;
  if (unreplayed_.size() >= kMost) unreplayed_.pop_front();
  unreplayed_.push_back(std::move(one));
}

bool Placer::replay_one() {
  // Under ids of its own: the jobs' may mean something else by now.
  constexpr std::uint64_t kFirst = std::uint64_t{1} << 63;
  bool has_replayed = false;
  while (!has_replayed && !unreplayed_.empty()) {
    Unreplayed one = std::move(unreplayed_.front());
    unreplayed_.pop_front();
    for (std::size_t i = 0; i < one.profiles.size(); ++i) {
      one.profiles[i].id = JobId{kFirst + i};
      one.group.jobs[i] = JobId{kFirst + i};
      predictor_.learn(one.profiles[i]);
    }
    has_replayed = !predictor_.cached(one.group);  // another decision may have noted the same
    if (has_replayed) predictor_.predict(one.group);
    for (const JobId id : one.group.jobs) predictor_.forget(id);
  }
  return has_replayed;
}

void Placer::remove(JobId id) {
  auto it = placed_.find(id);
  if (it == placed_.end()) return;
  const JobProfile& job = predictor_.profile(id);
  for (std::size_t g = 0; g < it->second.slots.size(); ++g) {
    slots_.leave(it->second.slots[g], id, static_cast<int>(g), job.gangs[g], it->second.loads[g]);
  }
  team_used_[job.team] -= gpus_of(job);
  placed_.erase(it);
  predictor_.forget(id);
}

}  // namespace plexrl::clustermgr::placement
