#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nodemgr/spanning/messages.h"

namespace plexrl::nodemgr::spanning {

struct CoordinatorConfig {
  Duration lost_after = std::chrono::seconds(30);      ///< silent for so long a node is lost
  Duration take_patience = std::chrono::seconds(15);   ///< above PartConfig::take_bound
  Duration lease_patience = std::chrono::minutes(2);   ///< for loading, too
  Duration drain_patience = std::chrono::seconds(15);  ///< above the nodes' own
  /// Of a job of which no node has told for so long nothing is kept.
  Duration forget_after = std::chrono::minutes(10);
  Duration backoff = std::chrono::milliseconds(250);  ///< doubled at each failure in a row
  Duration backoff_cap = std::chrono::seconds(10);
};

/// What of a slot outlives the coordinator.
struct SlotRecord {
  enum class Stage : std::uint8_t {
    kLeased,   ///< committed
    kStarted,  ///< gates may be open
    kOver,
    kForgotten,  ///< the job has ended: there is nothing to keep
  };
  struct PartOf {
    std::string node;
    GpuMask gpus = 0;
    bool operator==(const PartOf&) const = default;
  };
  std::string job;
  std::uint64_t slot = 0;
  Stage stage = Stage::kOver;
  int nodes = 0;
  std::vector<PartOf> parts;
  bool operator==(const SlotRecord&) const = default;
};

/// Hands out slots: leases of jobs over several nodes, all parts at once or none (messages.h).
///
/// Whose turn it is on a node its own policy says; here are only the rules between nodes:
/// - a slot is taken when it is the turn of every part, so nobody's GPUs are kept for a part that
///   would wait for another; of several on the same GPUs the one that has waited longest goes
///   first;
/// - on a GPU one job at most has a slot from kTake to the end of kWithdraw. So no two jobs ever
///   wait for each other's GPUs, and as gangs of one node alone always come to an end of their turn
///   there is no deadlock;
/// - a slot that was not started may be given up: a vote is no, or late, or a node is lost;
/// - one that was started ends when all parts have drained; if one can't, all go on, and the next
///   try comes later. A part on a lost node counts as drained.
///
/// Reads no clock, and sends nothing by itself: `report` and `tick`, then what `next_record` gives
/// is stored, then `orders` answers. After a crash `restore` gets the last record of each job. The
/// generation must be higher than all before.
class Coordinator {
 public:
  Coordinator(const CoordinatorConfig& config, std::uint64_t generation)
      : config_(config), generation_(generation) {}

  void restore(const SlotRecord& record, Instant now);
  /// A late or repeated one changes nothing.
  void report(const NodeReport& report, Instant now);
  /// When time has passed.
  void tick(Instant now);
  /// What has to be stored before anything goes on; `stored` says how that went.
  std::optional<SlotRecord> next_record() const;
  void stored(const SlotRecord& record, bool is_done, Instant now);
  NodeOrders orders(const std::string& node);

  /// For tests and for people.
  struct View {
    std::string job;
    std::uint64_t slot = 0;
    Verb verb = Verb::kBar;
    std::string why;
  };
  std::vector<View> view() const;
  /// Something is under way: nodes should report soon.
  bool is_busy_with(const std::string& node) const;

 private:
  struct Part {
    PartReport last;
    bool has_told = false;
    bool gone = false;  ///< its node tells that there is none any more
  };
  struct Job {
    std::uint64_t slot = 0;
    Verb verb = Verb::kBar;
    std::uint32_t attempt = 0;
    int nodes = 0;
    std::map<std::string, Part> parts;  ///< by node
    Instant since{0};                   ///< of the verb
    std::optional<Instant> wanted;      ///< since when some part wants a lease
    Instant not_before{0};              ///< of the next call, or the next try to withdraw
    int failures = 0;                   ///< in a row
    std::optional<SlotRecord::Stage> to_store;
    bool is_stored = false;  ///< there is a record
    Instant told{0};         ///< some node has told of it
    std::string why;
  };
  struct Node {
    std::uint64_t boot = 0, number = 0;
    std::deque<std::uint64_t> before;  ///< boots
    Instant heard{0};
  };

  bool is_lost(const std::string& node, Instant now) const;
  static bool is_done(const Job& job, const Part& part);
  bool all_done(const Job& job, Instant now, bool lost_are_done) const;
  static bool has_failed(const Job& job);
  bool has_lost(const Job& job, Instant now) const;
  bool is_asked_back(const Job& job, Instant now) const;
  bool is_in_gap(const Job& job, Instant now) const;
  bool may_withdraw(const Job& job, Instant now) const;
  static bool overlap(const Job& a, const Job& b);
  static bool has_slot(const Job& job) { return job.verb >= Verb::kTake; }
  void enter(Job& job, Verb verb, Instant now);
  void give_up(Job& job, Instant now, std::string why);
  void end(Job& job, Instant now);
  void back_off(Job& job, Instant now) const;
  void advance(Job& job, Instant now);
  void serve_called(Instant now);
  void explain(Job& job, Instant now) const;
  void step(Instant now);
  SlotRecord record_of(const std::string& id, const Job& job) const;

  CoordinatorConfig config_;
  std::uint64_t generation_;
  std::uint64_t slots_ = 0, orders_ = 0;
  std::map<std::string, Job> jobs_;
  std::map<std::string, Node> nodes_;
};

}  // namespace plexrl::nodemgr::spanning
