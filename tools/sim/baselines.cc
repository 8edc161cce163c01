#include <algorithm>
#include <functional>

#include "clustermgr/placement/correlation.h"
#include "tools/sim/random.h"
#include "tools/sim/scheduler.h"

namespace plexrl::sim {
namespace {

using placement::JobId;
using placement::JobProfile;
using placement::JobShape;
using placement::SlotId;

/// Jobs that share one slot for each of their gangs, as the related systems group them.
struct Members {
  std::vector<SlotId> slots;
  std::vector<JobId> jobs;
};

struct Candidate {
  const Members* group = nullptr;
  const JobProfile* job = nullptr;
  const JobShape* shape = nullptr;
  std::vector<const JobShape*> members;
  std::vector<const JobProfile*> profiles;

  /// Sum over members and the job of the share of time in the busiest slot.
  double duty() const {
    double most = 0;
    for (std::size_t g = 0; g < job->gangs.size(); ++g) {
      double sum = shape->duty(g);
      for (const JobShape* member : members) sum += member->duty(g);
      most = std::max(most, sum);
    }
    return most;
  }
  /// RollMux: one round takes as long as the longest member alone, or as all phases of one pool
  /// one after the other.
  double round_s() const {
    double round = shape->period_s;
    for (const JobShape* member : members) round = std::max(round, member->period_s);
    for (std::size_t g = 0; g < job->gangs.size(); ++g) {
      double sum = shape->gangs[g].longest_s * shape->gangs[g].bursts;
      for (const JobShape* member : members) {
        sum += member->gangs[g].longest_s * member->gangs[g].bursts;
      }
      round = std::max(round, sum);
    }
    return round;
  }
  /// The least patient of them accepts that all work is done one after the other.
  bool fits_in_time() const {
    double least = job->max_slowdown;
    for (const JobProfile* member : profiles) least = std::min(least, member->max_slowdown);
    return duty() <= least;
  }
  bool within_bounds(double round) const {
    if (round > job->max_slowdown * shape->period_s) return false;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (round > profiles[i]->max_slowdown * members[i]->period_s) return false;
    }
    return true;
  }
};

/// Cost of joining; the least is taken. Above kNever it is not joined; a new group costs
/// `new_group`.
constexpr double kNot = 1e18;
struct Rule {
  const char* name;
  const char* source;
  double new_group;  ///< cost of opening slots
  std::size_t most;  ///< members of a group
  std::function<double(const Candidate&, Random&)> cost;
};

double overlap(const Candidate& c) {
  double sum = 0;
  for (std::size_t g = 0; g < c.job->gangs.size(); ++g) {
    for (const JobProfile* member : c.profiles) {
      sum += placement::correlate(c.job->gangs[g].bursts, member->gangs[g].bursts,
                                  placement::from_seconds(1))
                 .best_overlap;
    }
  }
  return sum;
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"isolated", "each job on GPUs of its own", 0, 1,
       [](const Candidate&, Random&) { return kNot; }},
      {"random", "RollMux (arXiv 2512.11306): any group that its memory fits", 0.5, 5,
       [](const Candidate&, Random& random) { return random.uniform(); }},
      {"most-idle",
       "RollMux (arXiv 2512.11306): the group that is idle most, if its "
       "summed duty stays below the least patient member's bound",
       1e6, 5, [](const Candidate& c, Random&) { return c.fits_in_time() ? c.duty() : kNot; }},
      {"pack", "PlexRL (arXiv 2605.20863): the group with most members that has room", 1, 5,
       [](const Candidate& c, Random&) { return -static_cast<double>(c.members.size()); }},
      {"spread",
       "PlexRL (arXiv 2605.20863): new GPUs while there are any, then the group with "
       "fewest members",
       -1, 5, [](const Candidate& c, Random&) { return static_cast<double>(c.members.size()); }},
      {"round-robin",
       "RollMux (arXiv 2512.11306): least marginal cost; the longest phases seen, "
       "one after the other, keep every bound",
       1e6, 5,
       [](const Candidate& c, Random&) {
         double round = c.round_s();
         return c.within_bounds(round) ? round : kNot;
       }},
      {"pairs",
       "Muri (SIGCOMM 2022) in its online form: the best partner without one, if every "
       "bound holds when phases follow each other",
       1e6, 2,
       [](const Candidate& c, Random&) {
         double round = c.round_s();
         return c.within_bounds(round) ? round : kNot;
       }},
      {"first-fit-duty", "first fit: the first group whose summed duty stays below every bound",
       1e6, 5, [](const Candidate& c, Random&) { return c.fits_in_time() ? 0.0 : kNot; }},
      {"correlation",
       "the group whose recorded busy times overlap least at the best lag, if the "
       "summed duty stays below every bound",
       1e6, 5, [](const Candidate& c, Random&) { return c.fits_in_time() ? overlap(c) : kNot; }},
  };
  return all;
}

class Baseline : public Scheduler {
 public:
  Baseline(const Rule& rule, const placement::PlacerConfig& config, std::uint64_t seed)
      : rule_(rule), config_(config), random_(seed) {}

  placement::PlaceDecision place(const JobProfile& job) override {
    placement::PlaceDecision decision;
    JobShape shape = placement::shape_of(job);
    bool can_open = true;
    for (const placement::GangProfile& gang : job.gangs) can_open &= slots_.can_open(gang);
    double least = can_open ? rule_.new_group : kNot;
    const Members* best = nullptr;
    for (const Members& group : groups_) {
      if (!shape.known || !fits(group, job)) continue;
      Candidate candidate = look_at(group, job, shape);
      double cost = rule_.cost(candidate, random_);
      if (cost >= least) continue;
      least = cost;
      best = &group;
    }
    if (best == nullptr && !can_open) {
      decision.reason = "too few free GPUs, and no group that the rule accepts";
      return decision;
    }
    commit(job, shape, best, decision);
    return decision;
  }

  void remove(JobId id) override {
    auto it = known_.find(id);
    if (it == known_.end()) return;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      Members& group = groups_[i];
      auto member = std::find(group.jobs.begin(), group.jobs.end(), id);
      if (member == group.jobs.end()) continue;
      const JobProfile& job = it->second.profile;
      for (std::size_t g = 0; g < group.slots.size(); ++g) {
        slots_.leave(group.slots[g], id, static_cast<int>(g), job.gangs[g], 0);
      }
      group.jobs.erase(member);
      if (group.jobs.empty()) groups_.erase(groups_.begin() + static_cast<long>(i));
      break;
    }
    known_.erase(it);
  }

  void learn(const JobProfile& job) override {
    Known& known = known_[job.id];
    known.profile = job;
    known.shape = placement::shape_of(job);
  }
  placement::Slots& nodes() override { return slots_; }

 private:
  struct Known {
    JobProfile profile;
    JobShape shape;
  };

  bool fits(const Members& group, const JobProfile& job) const {
    std::size_t most = std::min(rule_.most, static_cast<std::size_t>(config_.max_sharers));
    if (group.jobs.size() >= most || group.slots.size() != job.gangs.size()) return false;
    for (std::size_t g = 0; g < group.slots.size(); ++g) {
      if (!slots_.obstacle(group.slots[g], job.gangs[g]).empty()) return false;
    }
    for (JobId id : group.jobs) {
      if (!known_.at(id).shape.known) return false;
    }
    return true;
  }

  Candidate look_at(const Members& group, const JobProfile& job, const JobShape& shape) const {
    Candidate candidate{&group, &job, &shape, {}, {}};
    for (JobId id : group.jobs) {
      candidate.members.push_back(&known_.at(id).shape);
      candidate.profiles.push_back(&known_.at(id).profile);
    }
    return candidate;
  }

  void commit(const JobProfile& job, const JobShape& shape, const Members* best,
              placement::PlaceDecision& decision) {
    Members* group = const_cast<Members*>(best);
    if (group == nullptr) {
      group = &groups_.emplace_back();
      for (const placement::GangProfile& gang : job.gangs) {
        group->slots.push_back(slots_.open(gang));
        decision.opened.push_back(group->slots.back());
      }
    }
    for (std::size_t g = 0; g < job.gangs.size(); ++g) {
      slots_.join(group->slots[g], job.id, static_cast<int>(g), job.gangs[g], 0);
    }
    group->jobs.push_back(job.id);
    known_[job.id] = {job, shape};
    decision.placed = true;
    decision.slots = group->slots;
    decision.reason = rule_.name;
  }

  const Rule& rule_;
  placement::PlacerConfig config_;
  Random random_;
  placement::Slots slots_;
  std::vector<Members> groups_;
  std::map<JobId, Known> known_;
};

}  // namespace

std::unique_ptr<Scheduler> baseline(const std::string& name, const placement::PlacerConfig& config,
                                    std::uint64_t seed) {
  for (const Rule& rule : rules()) {
    if (name == rule.name) return std::make_unique<Baseline>(rule, config, seed);
  }
  return nullptr;
}

std::vector<std::string> baseline_names() {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) names.emplace_back(rule.name);
  return names;
}

std::string baseline_source(const std::string& name) {
  for (const Rule& rule : rules()) {
    if (name == rule.name) return rule.source;
  }
  return "";
}

}  // namespace plexrl::sim
