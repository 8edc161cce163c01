#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "clustermgr/placement/predictor.h"
#include "clustermgr/placement/slots.h"

namespace plexrl::clustermgr::placement {

struct PlacerConfig {
  PredictorConfig predictor;
  /// Marginal cost of a choice = gpu_price · GPUs of newly opened slots
  ///   + slowdown_price · sum over affected jobs of (GPUs · added slowdown).
  double gpu_price = 1;
  double slowdown_price = 0.25;
  /// Share of the slowdown that a job accepts which is kept for what predictions miss.
  double reserve = 0;
  int max_sharers = 5;  ///< in one slot
  int max_group = 5;    ///< jobs that share directly or through others
  int candidates = 12;  ///< slots looked at closely, per gang
  int replays = 12;     ///< that one decision may make; 0: only what is remembered or estimated
  /// A job without history, or one beside it, may share where no GPUs are free and everybody there
  /// accepts one that never lets go. False: it waits for GPUs of its own.
  bool share_unprofiled = false;
  std::map<std::string, int> team_gpus;  ///< quota; a team that is not named has none
};

/// What was looked at, and what came of it.
struct Choice {
  std::vector<int> slots;  ///< by gang: slot, -1: a new one
  double cost = 0;
  double worst_slowdown = 1;  ///< largest share of what a member accepts, as predicted
  bool replayed = false;
  std::string refused;  ///< empty: it was possible
};

/// Why one slot of its size could not even be considered.
struct Obstacle {
  SlotId slot{};
  std::string why;
};

struct PlaceDecision {
  bool placed = false;
  std::vector<SlotId> slots;  ///< by gang
  std::vector<SlotId> opened;
  std::string reason;
  std::vector<Figure> figures;
  std::vector<Choice> choices;      ///< as they were looked at
  std::vector<Obstacle> obstacles;  ///< at most 16
};

/// Chooses slots for jobs as they come. A placed job stays where it is until it leaves.
///
/// Its time in the future is not known, nor is anything that node agents have not sent. A job
/// without history gets slots of its own, where it can be profiled; others may join once it is
/// known. Deterministic; work is bounded by counts, not by time.
class Placer {
 public:
  explicit Placer(PlacerConfig config);

  Slots& nodes() { return slots_; }
  const Slots& nodes() const { return slots_; }

  PlaceDecision place(const JobProfile& job);
  void remove(JobId job);

  /// For a service whose nodes and jobs come and go without it: forgets nodes, slots and who is
  /// where. What was learned and predicted of jobs stays.
  void start_over();
  /// A job that runs in these slots, one for each gang, whether or not it would be placed there.
  void adopt(const JobProfile& job, const std::vector<SlotId>& slots);

  /// Replays one of the groups that decisions had only estimates for, though all bursts are known:
  /// for the next decision. False when there is none.
  bool replay_one();
  /// Newer records of a placed job; its promises stay. Others are ignored.
  void learn(const JobProfile& job);

  /// Predicted slowdown of a placed job, as of the last decision that touched its group.
  double predicted(JobId job) const { return placed_.at(job).predicted; }
  const std::vector<SlotId>& slots_of(JobId job) const { return placed_.at(job).slots; }
  Predictor& predictor() { return predictor_; }
  /// Whether it has a place; then `profile` is what is known of it.
  bool knows(JobId job) const { return placed_.contains(job); }
  const JobProfile& profile(JobId job) const { return predictor_.profile(job); }
  void set_replays(int replays) { config_.replays = replays; }
  std::size_t jobs() const { return placed_.size(); }

 private:
  struct Placed {
    std::vector<SlotId> slots;
    std::vector<double> loads;
    double predicted = 1;
  };
  struct Option {
    std::vector<int> slots;
    double optimistic = 0;  ///< cost if nobody is slowed down but by load
    int opened_gpus = 0;
    bool in_turns = false;  ///< every bound holds if each takes every slot once a round, in turn
  };

  /// Its jobs may be gone, or another's id, when its turn comes.
  struct Unreplayed {
    Group group;
    std::vector<JobProfile> profiles;
  };
  void note_unreplayed(const Group& group);
  std::vector<Option> options_for(const JobProfile& job, std::vector<Obstacle>& obstacles);
  std::vector<int> joinable(const JobProfile& job, std::size_t gang,
                            std::vector<Obstacle>& obstacles) const;
  std::string why_not_joinable(const JobProfile& job, std::size_t gang, SlotId slot) const;
  void occupy(const JobProfile& job, const std::vector<SlotId>& slots);
  Group group_with(const JobProfile& job, const std::vector<int>& slots, bool& too_large) const;
  double limit_of(JobId id) const;
  double load_of(JobId id, std::size_t gang) const;
  double cost_of(const JobProfile& job, const std::vector<int>& slots, const Group& group,
                 const Prediction& prediction) const;
  bool holds_in_turns(const Group& group) const;
  bool acceptable(const Group& group, const Prediction& prediction, double& worst) const;
  Choice judge(const JobProfile& job, const Option& option, int& replays_left, Prediction& result,
               Group& group);
  void commit(const JobProfile& job, const Choice& choice, const Group& group,
              const Prediction& prediction, PlaceDecision& decision);

  PlacerConfig config_;
  Predictor predictor_;
  Slots slots_;
  std::map<JobId, Placed> placed_;
  std::map<std::string, int> team_used_;
  std::deque<Unreplayed> unreplayed_;
};

}  // namespace plexrl::clustermgr::placement
