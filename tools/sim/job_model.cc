#include "tools/sim/job_model.h"

#include <algorithm>

#include "clustermgr/placement/virtual_cluster.h"

namespace plexrl::sim {

namespace placement = clustermgr::placement;

namespace {

/// Tasks of one step in order: stage by stage, side by side gangs burst by burst.
class ModelTasks : public placement::TaskSource {
 public:
  ModelTasks(const JobModel& job, std::uint64_t seed, int steps)
      : job_(job), random_(seed), steps_(steps) {
    int position = 0;
    for (const StageModel& stage : job.stages) {
      first_.push_back(position);
      position += lanes(stage) * stage.bursts;
    }
    per_step_ = position;
  }

  bool next(placement::Task& task) override {
    if (steps_ >= 0 && step_ >= steps_) return false;
    const StageModel& stage = job_.stages[stage_];
    task = placement::Task{};
    task.gang = stage.gangs.empty() ? -1 : stage.gangs[lane_];
    task.work = from_seconds(std::max(1e-9, stage.time.draw(random_, step_)));
    std::size_t used = 0;
    auto after = [&](int back, Duration delay) { task.after[used++] = {back, delay}; };
    if (burst_ > 0) {
      after(1, from_seconds(std::max(0.0, stage.gap.draw(random_, step_))));
    } else if (stage_ > 0) {
      const StageModel& before = job_.stages[stage_ - 1];
      wait_for_all(before, first_[stage_ - 1], after);
    } else {
      const std::size_t last = job_.stages.size() - 1;
      wait_for_all(job_.stages[last], first_[last] - per_step_ * (1 + job_.lag), after);
    }
    // Not before the same stage of the step before; the first of a lane says it for the rest.
    if (burst_ == 0 && (job_.lag > 0 || used == 0))
      after(per_step_ - stage.bursts + 1, Duration{0});
    task.ends_step = position_ == per_step_ - 1;
    advance(stage);
    return true;
  }

 private:
  static int lanes(const StageModel& stage) {
    return std::max<int>(1, static_cast<int>(stage.gangs.size()));
  }

  /// The last burst of every lane of a stage whose first task is at `first` in this step.
  template <typename After>
  void wait_for_all(const StageModel& stage, int first, After after) {
    for (int lane = 0; lane < lanes(stage); ++lane) {
      after(position_ - (first + lane * stage.bursts + stage.bursts - 1), Duration{0});
    }
  }

  void advance(const StageModel& stage) {
    ++position_;
    if (++burst_ < stage.bursts) return;
    burst_ = 0;
    if (++lane_ < lanes(stage)) return;
    lane_ = 0;
    if (++stage_ < job_.stages.size()) return;
    stage_ = 0;
    position_ = 0;
    ++step_;
  }

  const JobModel& job_;
  Random random_;
  int steps_;
  std::vector<int> first_;
  int per_step_ = 0;
  int step_ = 0;
  int position_ = 0;
  std::size_t stage_ = 0;
  int lane_ = 0;
  int burst_ = 0;
};

/// The job alone, each gang on GPUs of its own that hold all its memory.
struct Alone {
  placement::VirtualCluster cluster;
  int index = 0;

  Alone(const JobModel& job, std::uint64_t seed, int steps, std::size_t record,
        const placement::MoveModel* moves) {
    std::vector<placement::GangPlace> places;
    for (const GangModel& gang : job.gangs) {
      std::int64_t bytes = moves == nullptr ? 0 : gang.hbm_bytes;
      placement::VirtualNode node({}, moves == nullptr ? placement::MoveModel{} : *moves,
                                  {std::max<std::int64_t>(1, bytes)}, 1);
      places.push_back({cluster.add_node(std::move(node)), {gang.name, 1, bytes, 0}});
    }
    index = cluster.add_job(std::move(places), tasks_of(job, seed, steps), Instant{0}, record);
    cluster.run_until(placement::kNever);
  }
};

}  // namespace

std::string problem_of(const JobModel& job) {
  if (job.stages.empty()) return "has no stages";
  if (job.steps < 1) return "has no steps";
  if (job.lag < 0) return "has a negative lag";
  int per_step = 0;
  for (const StageModel& stage : job.stages) {
    if (stage.bursts < 1) return "stage '" + stage.name + "' has no bursts";
    if (stage.gangs.size() + 2 > placement::kMaxAfter) {
      return "stage '" + stage.name + "' has more than 8 gangs side by side";
    }
    for (int gang : stage.gangs) {
      if (gang < 0 || gang >= static_cast<int>(job.gangs.size())) {
        return "stage '" + stage.name + "' names no gang of the job";
      }
    }
    per_step += stage.bursts * std::max<int>(1, static_cast<int>(stage.gangs.size()));
  }
  if (per_step * (1 + job.lag) + 1 > placement::kMaxBack) {
    return "has more than 63 bursts in the steps that may overlap";
  }
  return "";
}

std::unique_ptr<placement::TaskSource> tasks_of(const JobModel& job, std::uint64_t seed,
                                                int steps) {
  return std::make_unique<ModelTasks>(job, seed, steps);
}

std::vector<Instant> step_ends_alone(const JobModel& job, std::uint64_t seed, int steps,
                                     const placement::MoveModel* moves) {
  Alone alone(job, seed, steps, 0, moves);
  return alone.cluster.job(alone.index).step_ends;
}

placement::JobProfile recorded_alone(const JobModel& job, placement::JobId id, std::uint64_t seed,
                                     int steps) {
  Alone alone(job, seed, steps, static_cast<std::size_t>(steps) * 64, nullptr);
  placement::JobProfile profile;
  profile.id = id;
  profile.name = job.name;
  profile.team = job.team;
  profile.max_slowdown = job.max_slowdown;
  profile.apart_from = job.apart_from;
  for (std::size_t g = 0; g < job.gangs.size(); ++g) {
    const GangModel& model = job.gangs[g];
    placement::GangProfile& gang = profile.gangs.emplace_back();
    gang.pool = model.pool;
    gang.gpus = model.gpus;
    gang.shareable = model.shareable;
    gang.hbm_bytes = model.hbm_bytes;
    gang.fixed_bytes = model.fixed_bytes;
    const auto& bursts = alone.cluster.bursts(alone.index, static_cast<int>(g));
    gang.bursts.assign(bursts.begin(), bursts.end());
  }
  return profile;
}

}  // namespace plexrl::sim
