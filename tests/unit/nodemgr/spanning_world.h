#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "nodemgr/policy/step.h"
#include "nodemgr/spanning/coordinator.h"
#include "nodemgr/spanning/node_parts.h"

namespace plexrl::nodemgr::spanning::test {

using namespace std::chrono_literals;

/// What goes wrong, until `until`.
struct Trouble {
  Instant until{0};
  double lost = 0, repeated = 0;  ///< share of messages
  Duration delay{0};              ///< longest of a message
  Duration coordinator_dies{0};   ///< mean time between; 0: never
  Duration coordinator_away{0};   ///< longest
  double dies_at_store = 0;       ///< share of what it stores: half of these before it is there
  Duration node_dies{0};          ///< mean time between
  Duration node_away{0};
};

/// A job over several nodes. In each round all its ranks compute, with collectives in between: work
/// that has begun on one part can't end, nor be cut, before all parts run.
struct SpanningHabit {
  std::map<int, GpuMask> parts;  ///< by node
  int rounds = 10;
  Duration work{0}, gap{0};
  double refuses = 0;  ///< share of attempts to drain that fail though all parts run
  Instant starts{0};
  std::int64_t bytes = 0;
};

struct LocalHabit {
  int node = 0;
  GpuMask gpus = 1;
  Duration burst{0}, gap{0};
  std::int64_t bytes = 0;
};

/// Nodes with the real policy, the real coordinator, jobs, and messages that may be lost, late and
/// repeated, in virtual time. Notes each breach of what must always hold.
class World {
 public:
  World(int nodes, int gpus, const Trouble& trouble, std::uint64_t seed);
  ~World();

  void add(const std::string& job, const SpanningHabit& habit);
  void add(const LocalHabit& habit);
  void run_until(Instant end);
  void kill_coordinator(Duration away);
  void kill_node(int node, Duration away);
  /// Its processes on all nodes, one after the other.
  void kill_job(const std::string& job);

  const std::vector<std::string>& breaches() const { return breaches_; }
  int rounds(const std::string& job) const;
  bool has_finished(const std::string& job) const;
  int bursts(int local) const;
  bool runs(const std::string& job, int node) const;
  const policy::Gang* part(const std::string& job, int node) const;
  std::size_t records() const { return store_.size(); }
  const Coordinator* coordinator() const { return coordinator_ ? &*coordinator_ : nullptr; }
  Instant now() const { return now_; }
  /// Slots that were started.
  std::size_t slots() const { return acknowledged_.size(); }
  /// Looked at after each event.
  std::function<void()> watch;

 private:
  struct Rank;
  struct Job;
  struct Local;
  struct Node;

  void later(Duration in, std::function<void()> what);
  void step(Node& node, std::vector<policy::Event> events = {});
  void carry_out(Node& node, const policy::Decision& decision);
  void stand(Node& node);
  void wake(Node& node, Instant at);
  void poll(Node& node);
  void deliver(int node, const NodeReport& report);
  void send(std::function<void()> arrive);
  bool store();
  void start_coordinator();
  void start_node(Node& node);
  void describe(Node& node, policy::GangId id);
  void opened(Node& node, policy::GangId id);
  void closed(Node& node, policy::GangId id);
  void drain(Node& node, const policy::Decision& decision);
  void want(Node& node, policy::GangId id, bool wants);
  void begin_round(Job& job);
  void look_at_round(Job& job);
  void check();
  bool is_trouble() const { return now_ < trouble_.until; }
  bool chance(double share) { return std::uniform_real_distribution<double>(0, 1)(rng_) < share; }
  Duration up_to(Duration most);
  void plan_deaths();

  struct Later {
    Instant at;
    std::uint64_t order;
    std::function<void()> what;
    bool operator>(const Later& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };
  std::priority_queue<Later, std::vector<Later>, std::greater<>> queue_;
  std::uint64_t order_ = 0;
  Trouble trouble_;
  std::mt19937_64 rng_;
  Instant now_{0};
  int gpus_;
  CoordinatorConfig config_;
  std::uint64_t generation_ = 0;
  std::optional<Coordinator> coordinator_;
  std::map<std::string, SlotRecord> store_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<Local>> locals_;
  std::uint64_t next_gang_ = 1;
  std::map<std::uint64_t, std::set<int>> acknowledged_;  ///< slots: nodes that had their lease
  std::vector<std::string> breaches_;
};

}  // namespace plexrl::nodemgr::spanning::test
