#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"

namespace plexrl::clustermgr {

/// A request for a place, and what came of it.
struct PlacementView {
  /// By monotonic time of this manager.
  using Instant = std::chrono::nanoseconds;

  cluster::v1::Placement record;
  Instant heard{0};         ///< the requester was; of one from the store: when we began
  bool is_seen = false;     ///< its node has told of the job
  int reports_without = 0;  ///< of its node, since its id was told, that did not

  bool is_waiting() const { return record.state() == cluster::v1::Placement::QUEUED; }
  /// GPUs are its own.
  bool has_place() const {
    return record.state() == cluster::v1::Placement::PLACED ||
           record.state() == cluster::v1::Placement::RUNNING;
  }
};

/// Who has asked for a place, who waits and who has one. States go QUEUED → PLACED → RUNNING →
/// ENDED; every step is computed as the record that it leads to, so that it can be stored before it
/// counts. Reads no clock and no file; one thread at a time.
class Placements {
 public:
  using Instant = PlacementView::Instant;
  using Records = std::vector<cluster::v1::Placement>;
  static constexpr std::size_t kMostLive = 10'000;
  static constexpr char kRequesterGone[] = "who asked for it has gone";  ///< why it ended
  static constexpr std::size_t kMostEnded = 256;                         ///< kept to be asked about
  /// So many that came later may be placed before one that waits; then all wait for it.
  static constexpr std::uint32_t kMostOvertaken = 16;

  explicit Placements(Instant requester_lost_after) : lost_after_(requester_lost_after) {}

  /// Whether it can be asked for at all: InvalidArgument says what is wrong.
  [[nodiscard]] static absl::Status check(const cluster::v1::PlaceJobRequest& request);

  const std::map<std::string, PlacementView>& all() const { return all_; }
  const PlacementView* find(const std::string& id) const;
  /// By an id, a beginning of one, slurm:ID, or a name: the one that lives, else the last one.
  /// NotFound, or InvalidArgument when a beginning fits several.
  [[nodiscard]] absl::StatusOr<cluster::v1::Placement> find_job(const std::string& word) const;
  /// Those that wait, in the order in which they came.
  std::vector<std::string> queue() const;
  /// No newcomer may go before one of those that wait.
  bool has_waited_enough() const;

  /// A new one, in the queue, with no decision yet. ResourceExhausted when there are too many.
  [[nodiscard]] absl::StatusOr<cluster::v1::Placement> newcomer(
      const cluster::v1::PlaceJobRequest& request, std::int64_t now_unix_ns) const;
  /// What a node's report ends. Counts the report.
  Records ended_by(const cluster::v1::ReportNodeRequest& report, std::int64_t now_unix_ns);
  /// Those that ran on a node that has left.
  Records ended_with(const std::string& node, std::int64_t now_unix_ns) const;
  /// Those whose jobs are lost with their node.
  Records lost_with(const std::string& node, std::int64_t now_unix_ns) const;
  /// Those whose requester has been silent too long and that do not run.
  Records given_up(Instant now, std::int64_t now_unix_ns) const;
  static cluster::v1::Placement ended(cluster::v1::Placement record, const std::string& reason,
                                      std::int64_t now_unix_ns);
  /// Ids of ended ones beyond kMostEnded when these have been put, oldest first.
  std::vector<std::string> too_old() const;

  /// Takes in a record that is stored. One that is placed has overtaken those that came earlier.
  void put(cluster::v1::Placement record, Instant now);
  void heard(const std::string& id, Instant now);
  /// The last decision about one that still waits.
  void explain(const std::string& id, cluster::v1::Decision decision);
  void forget(const std::string& id) { all_.erase(id); }

 private:
  Instant lost_after_;
  std::map<std::string, PlacementView> all_;
};

}  // namespace plexrl::clustermgr
