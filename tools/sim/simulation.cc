#include "tools/sim/simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>

#include "clustermgr/placement/virtual_cluster.h"

namespace plexrl::sim {
namespace {

using placement::JobId;
using placement::SlotId;

/// Steps after which a running job's newer records replace those that placement has.
constexpr std::size_t kRelearnSteps = 8;
/// Bursts per gang that a node agent keeps.
constexpr std::size_t kRecordBursts = 64;

class Run {
 public:
  Run(const Setup& setup, const std::vector<JobModel>& jobs, Scheduler& scheduler)
      : setup_(setup), models_(jobs), scheduler_(scheduler) {
    for (const placement::NodeInfo& node : setup.nodes) scheduler.nodes().add_node(node);
    live_.resize(jobs.size());
    result_.jobs.resize(jobs.size());
  }

  Result run(const std::function<void(std::size_t)>& progress) {
    std::vector<std::size_t> order(models_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return models_[a].arrival_s < models_[b].arrival_s;
    });
    std::size_t next = 0;
    std::size_t done = 0;
    while (true) {
      Instant until =
          next < order.size() ? from_seconds(models_[order[next]].arrival_s) : placement::kNever;
      cluster_.run_until(until, [&] { return cluster_.any_finished(); });
      std::vector<int> finished = cluster_.take_finished();
      if (!finished.empty()) {
        for (int job : finished) finish(owner_.at(job));
        done += finished.size();
        if (progress) progress(done);
        try_waiting();
        continue;
      }
      if (next >= order.size()) break;
      queue_.push_back(order[next++]);
      try_waiting();
    }
    result_.end_s = seconds(cluster_.now());
    result_.events = cluster_.events();
    return std::move(result_);
  }

 private:
  struct Live {
    int index = -1;  ///< in the cluster
    placement::JobProfile profile;
    std::size_t learned_steps = 0;
    std::vector<SlotId> slots;
  };

  std::uint64_t work_seed(std::size_t job) const { return derive(setup_.seed, 2 * job); }

  placement::JobProfile history_of(std::size_t job) const {
    // An earlier run: the same kind of job, other draws.
    return recorded_alone(models_[job], JobId{job + 1}, derive(setup_.seed, 2 * job + 1),
                          std::max(1, setup_.history_steps));
  }

  void try_waiting() {
    relearn();
    for (auto it = queue_.begin(); it != queue_.end();) {
      if (start(*it)) {
        it = queue_.erase(it);
      } else if (setup_.backfill) {
        ++it;
      } else {
        break;
      }
    }
  }

  /// What node agents have sent by now.
  void relearn() {
    for (std::size_t job : running_) {
      Live& live = live_[job];
      std::size_t steps = cluster_.job(live.index).step_ends.size();
      if (steps < live.learned_steps + kRelearnSteps) continue;
      live.learned_steps = steps;
      for (std::size_t g = 0; g < live.profile.gangs.size(); ++g) {
        const auto& bursts = cluster_.bursts(live.index, static_cast<int>(g));
        live.profile.gangs[g].bursts.assign(bursts.begin(), bursts.end());
      }
      scheduler_.learn(live.profile);
    }
  }

  bool start(std::size_t job) {
    Live& live = live_[job];
    if (live.profile.gangs.empty()) {
      live.profile = history_of(job);
      if (setup_.history_steps == 0) {
        for (placement::GangProfile& gang : live.profile.gangs) gang.bursts.clear();
      }
    }
    placement::PlaceDecision decision = scheduler_.place(live.profile);
    JobResult& result = result_.jobs[job];
    result.reason = decision.reason;
    if (!decision.placed) return false;
    for (SlotId slot : decision.opened) open(slot);
    const JobModel& model = models_[job];
    std::vector<placement::GangPlace> places;
    for (std::size_t g = 0; g < model.gangs.size(); ++g) {
      const GangModel& gang = model.gangs[g];
      places.push_back(
          {slot_nodes_.at(decision.slots[g]), {model.name, 1, gang.hbm_bytes, gang.fixed_bytes}});
      result.slots.push_back(slot_numbers_.at(decision.slots[g]));
    }
    live.slots = decision.slots;
    live.index = cluster_.add_job(std::move(places), tasks_of(model, work_seed(job), model.steps),
                                  cluster_.now(), kRecordBursts);
    owner_[live.index] = job;
    running_.push_back(job);
    result.name = model.name;
    result.team = model.team;
    result.arrival_s = model.arrival_s;
    result.started_s = seconds(cluster_.now());
    result.gpus = model.gpus();
    result.max_slowdown = model.max_slowdown;
    return true;
  }

  void open(SlotId slot) {
    // One GPU stands for all of the slot: they are in step.
    int node = cluster_.add_node(placement::VirtualNode(
        setup_.policy, setup_.moves, {setup_.usable_hbm_bytes}, derive(setup_.seed, 1)));
    slot_nodes_[slot] = node;
    slot_numbers_[slot] = static_cast<int>(result_.slots.size());
    const placement::Slot& info = scheduler_.nodes().at(slot);
    result_.slots.push_back({static_cast<int>(result_.slots.size()), info.pool, info.gpus,
                             seconds(cluster_.now()), 0, 0});
  }

  void finish(std::size_t job) {
    Live& live = live_[job];
    JobResult& result = result_.jobs[job];
    const JobModel& model = models_[job];
    result.finished = true;
    result.finished_s = seconds(cluster_.job(live.index).finished_at);
    result.alone_s =
        seconds(step_ends_alone(model, work_seed(job), model.steps, &setup_.moves).back());
    result.slowdown = (result.finished_s - result.started_s) / result.alone_s;
    result.within_bound = result.slowdown <= model.max_slowdown + 1e-9;
    for (std::size_t g = 0; g < model.gangs.size(); ++g) {
      placement::GangTotals totals = cluster_.gang_totals(live.index, static_cast<int>(g));
      result.switches += totals.grants;
      result.moved_bytes += (totals.in_bytes + totals.out_bytes) * model.gangs[g].gpus;
      result.longest_wait_s = std::max(result.longest_wait_s, seconds(totals.longest_wait));
      result.worked_gpu_s += seconds(totals.worked) * model.gangs[g].gpus;
      result_.slots[slot_numbers_.at(live.slots[g])].worked_s += seconds(totals.worked);
    }
    result_.worked_gpu_s += result.worked_gpu_s;
    cluster_.remove_job(live.index);
    std::erase(running_, job);
    scheduler_.remove(JobId{job + 1});
    for (SlotId slot : live.slots) {
      if (scheduler_.nodes().at(slot).open) continue;
      auto number = slot_numbers_.find(slot);
      if (number == slot_numbers_.end()) continue;  // two gangs had the same slot
      SlotUse& use = result_.slots[number->second];
      use.closed_s = seconds(cluster_.now());
      result_.gpu_s += (use.closed_s - use.opened_s) * use.gpus;
      slot_numbers_.erase(number);
      slot_nodes_.erase(slot);
    }
  }

  const Setup& setup_;
  const std::vector<JobModel>& models_;
  Scheduler& scheduler_;
  placement::VirtualCluster cluster_;
  std::vector<Live> live_;
  std::deque<std::size_t> queue_;
  std::vector<std::size_t> running_;
  std::map<int, std::size_t> owner_;
  std::map<SlotId, int> slot_nodes_;
  std::map<SlotId, int> slot_numbers_;
  Result result_;
};

template <typename Value>
double mean(const std::vector<JobResult>& jobs, Value value) {
  double sum = 0;
  for (const JobResult& job : jobs) sum += value(job);
  return jobs.empty() ? 0 : sum / static_cast<double>(jobs.size());
}

}  // namespace

double Result::mean_slowdown() const {
  return mean(jobs, [](const JobResult& job) { return job.slowdown; });
}

double Result::quantile_slowdown(double q) const {
  std::vector<double> all;
  for (const JobResult& job : jobs) all.push_back(job.slowdown);
  if (all.empty()) return 0;
  std::sort(all.begin(), all.end());
  return all[static_cast<std::size_t>(q * static_cast<double>(all.size() - 1) + 0.5)];
}

double Result::mean_completion_s() const {
  return mean(jobs, [](const JobResult& job) { return job.finished_s - job.arrival_s; });
}

double Result::mean_queueing_s() const {
  return mean(jobs, [](const JobResult& job) { return job.started_s - job.arrival_s; });
}

double Result::bound_met() const {
  return mean(jobs, [](const JobResult& job) { return job.within_bound ? 1.0 : 0.0; });
}

Result simulate(const Setup& setup, const std::vector<JobModel>& jobs, Scheduler& scheduler,
                const std::function<void(std::size_t)>& progress) {
  return Run(setup, jobs, scheduler).run(progress);
}

}  // namespace plexrl::sim
