#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "clustermgr/placement/tasks.h"
#include "clustermgr/placement/virtual_node.h"

namespace plexrl::clustermgr::placement {

/// Where a gang of a job runs.
struct GangPlace {
  int node = 0;  ///< index, as returned by add_node
  VirtualGang gang;
};

/// Jobs on nodes in virtual time: starts each task when what it depends on has ended, and lets the
/// gang's node decide when it runs. A gang over several machines is modelled by one node that
/// stands for all of them, as they are in step.
///
/// Not thread-safe; deterministic.
class VirtualCluster {
 public:
  struct JobTotals {
    bool finished = false;  ///< its source has ended and so has its work
    Instant started{0};
    Instant finished_at{0};
    std::vector<Instant> step_ends;
  };

  int add_node(VirtualNode node);
  /// Starts a job at `at`, not before now(). `record`: how many bursts per gang are kept as a node
  /// agent would (0: none). Returns its index.
  int add_job(std::vector<GangPlace> gangs, std::unique_ptr<TaskSource> source, Instant at,
              std::size_t record = 0);

  /// Runs until nothing is left to do before `end`, or `stop` (asked after every moment) says so.
  /// Then now() is the last moment handled, or `end`.
  void run_until(Instant end, const std::function<bool()>& stop = {});
  /// Takes a job off its nodes at now(), finished or not.
  void remove_job(int job);

  /// Jobs that have finished since the last call, in order.
  std::vector<int> take_finished() { return std::exchange(finished_, {}); }
  bool any_finished() const { return !finished_.empty(); }

  Instant now() const { return now_; }
  const JobTotals& job(int index) const { return jobs_[index].totals; }
  /// Sums over its gangs so far.
  GangTotals gang_totals(int job, int gang) const;
  /// What was recorded of a gang, oldest first.
  const std::deque<Burst>& bursts(int job, int gang) const { return jobs_[job].gangs[gang].record; }
  VirtualNode& node(int index) { return nodes_[index]; }
  std::size_t node_count() const { return nodes_.size(); }
  /// Steps of the policy and of jobs, in all.
  std::uint64_t events() const;

 private:
  struct Piece {
    Task task;
    enum class State : std::uint8_t { kBlocked, kTimed, kQueued, kDone } state = State::kBlocked;
    Instant ended{0};
  };
  struct LiveGang {
    int node = 0;
    GangId id{};
    std::deque<std::uint64_t> queue;  ///< numbers of pieces; the first one is with the node
    Instant wanted{0};
    std::deque<Burst> record;
    GangTotals kept;  ///< after its removal
  };
  struct Job {
    std::vector<LiveGang> gangs;
    std::unique_ptr<TaskSource> source;
    std::deque<Piece> pieces;
    std::uint64_t first = 0;  ///< number of pieces.front()
    std::uint64_t unfinished = 0;
    bool source_ended = false;
    bool removed = false;
    std::size_t record = 0;
    JobTotals totals;
  };
  struct Timer {
    Instant at;
    std::uint64_t order;
    int job;
    std::uint64_t piece;
    bool ends;  ///< the piece ends (it needs no GPU); else it starts
    bool operator>(const Timer& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };
  struct NodeTimer {
    Instant at;
    int node;
    bool operator>(const NodeTimer& o) const { return std::tie(at, node) > std::tie(o.at, o.node); }
  };

  void refill(int job);
  void unblock(int job);
  void start(int job, std::uint64_t piece);
  void feed(int job, int gang);
  void end(int job, std::uint64_t piece);
  void finished_burst(int node, const VirtualNode::Finished& finished);
  void touch(int node);

  std::vector<VirtualNode> nodes_;
  std::vector<std::map<GangId, std::pair<int, int>>> owners_;  ///< by node: gang -> job, gang index
  std::vector<Job> jobs_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::priority_queue<NodeTimer, std::vector<NodeTimer>, std::greater<>> node_timers_;
  std::vector<Instant> node_next_;
  std::vector<int> finished_;
  std::uint64_t order_ = 0;
  std::uint64_t job_events_ = 0;
  Instant now_{0};
};

}  // namespace plexrl::clustermgr::placement
