#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "clustermgr/placement/profile.h"
#include "clustermgr/placement/recorded_tasks.h"
#include "clustermgr/placement/virtual_node.h"

namespace plexrl::clustermgr::placement {

/// Jobs that share slots, directly or through others: member i's gang g runs in slot
/// `slots[i][g]`, numbered from 0 within the group.
struct Group {
  std::vector<JobId> jobs;
  std::vector<std::vector<int>> slots;
};

/// How a group is expected to run.
struct Prediction {
  std::vector<double> slowdown;  ///< by member: round time in the group over round time alone
  bool replayed = false;         ///< else the analytic estimate
  double switches_per_hour = 0;  ///< replay only
};

struct PredictorConfig {
  nodemgr::policy::Config policy;  ///< of the nodes
  MoveModel moves;
  std::int64_t usable_hbm_bytes = 0;  ///< per GPU
  int steps = 12;                     ///< of the slowest member, after a third as many to settle
  int starts = 3;  ///< ways in which members start relative to each other; the worst one counts
  std::uint64_t seed = 1;
  std::size_t most_predictions = std::size_t{1} << 22;  ///< remembered
  /// For jobs that come again: a job is known by its records, whatever its id.
  bool remember_records = false;
};

/// Predicts by replaying what was recorded of the members under the node policy, switch costs
/// charged; remembers the result for each group until one of its members' profile changes.
///
/// Not thread-safe. A service replays off its decision path: `cached` or `estimate` answer at once,
/// `predict` may replay.
class Predictor {
 public:
  explicit Predictor(PredictorConfig config) : config_(std::move(config)) {}

  /// New or changed profile. Where it differs, predictions of groups with this job are made again
  /// when asked for; with `remember_records` jobs with the same bursts and about as much memory are
  /// the same for that.
  void learn(JobProfile profile);
  void forget(JobId job);
  /// What a switch takes, from now on; where that is something else, replays are made again.
  void set_machine(std::int64_t usable_hbm_bytes, const MoveModel& moves);
  const JobProfile& profile(JobId job) const { return known_.at(job).profile; }
  const JobShape& shape(JobId job) const { return known_.at(job).shape; }
  /// Enough bursts are known of it to be replayed.
  bool has_round(JobId job) const { return !known_.at(job).round->empty(); }

  /// The replay, from memory if it was made; the estimate where a member has no history.
  Prediction predict(const Group& group);
  /// What `predict` would say, if it was asked before.
  std::optional<Prediction> cached(const Group& group) const;
  /// From duties, periods and their variation; microseconds.
  Prediction estimate(const Group& group) const { return estimate(group, true); }
  /// The least that it can be: sharers of a slot only have to fit into its time.
  Prediction estimate_load(const Group& group) const { return estimate(group, false); }

  std::uint64_t replays() const { return replays_; }
  std::uint64_t replay_events() const { return replay_events_; }
  const PredictorConfig& config() const { return config_; }

 private:
  struct Known {
    JobProfile profile;
    JobShape shape;
    std::unique_ptr<RecordedRound> round;
    std::uint64_t version = 0;
    std::vector<Instant> alone;  ///< ends of its steps in a replay alone
    Instant alone_until{0};
  };
  std::uint64_t version_of(const JobProfile& profile);
  std::vector<std::size_t> order_of(const Group& group) const;
  std::string key_of(const Group& group, const std::vector<std::size_t>& order) const;
  Prediction replay(const Group& group);
  void replay_from(const Group& group, int start, Prediction& worst);
  Prediction estimate(const Group& group, bool with_waits) const;
  /// Ends of its steps when it runs alone, at least until `until`.
  const std::vector<Instant>& alone(JobId job, Instant until);

  PredictorConfig config_;
  std::map<JobId, Known> known_;
  std::unordered_map<std::string, Prediction> cache_;
  std::uint64_t versions_ = 0;
  /// Of records that were known lately, the last ones at the end.
  std::deque<std::pair<std::vector<GangProfile>, std::uint64_t>> seen_;
  std::uint64_t replays_ = 0;
  std::uint64_t replay_events_ = 0;
};

/// Seconds that one hand-over of the gang costs when its memory leaves and returns; 0 when all
/// members' memory fits side by side.
double swap_s(const PredictorConfig& config, const std::vector<const GangProfile*>& sharers,
              const GangProfile& gang);

}  // namespace plexrl::clustermgr::placement
