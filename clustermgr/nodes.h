#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/cluster.pb.h"

namespace plexrl::clustermgr {

struct NodesConfig {
  std::chrono::nanoseconds lost_after{std::chrono::seconds(30)};
  std::chrono::nanoseconds jobs_lost_after{std::chrono::minutes(5)};  ///< after that
};

/// One node, as its reports tell of it.
struct NodeView {
  /// By monotonic time of this manager.
  using Instant = std::chrono::nanoseconds;

  cluster::v1::NodeRecord record;
  Instant seen{0};  ///< last report; of one from the store: when we began
  bool lost = false;
  double clock_ahead_s = 0;
};

/// The nodes of a cluster: who is there, who is lost, and what their jobs are like. Reads no clock
/// and no file; one thread at a time.
class Nodes {
 public:
  using Instant = NodeView::Instant;

  explicit Nodes(NodesConfig config) : config_(config) {}

  /// Whether a report can be true at all: InvalidArgument says what can't.
  [[nodiscard]] static absl::Status check(const cluster::v1::ReportNodeRequest& report);

  /// What the report would make of the node's record; `changes` when that is worth storing.
  struct Outcome {
    cluster::v1::NodeRecord record;
    bool changes = false;
  };
  Outcome outcome_of(const cluster::v1::ReportNodeRequest& report) const;

  /// Takes in a report that was checked, and whose outcome is stored.
  void accept(const cluster::v1::ReportNodeRequest& report, cluster::v1::NodeRecord record,
              Instant now, std::int64_t now_unix_ns);
  /// What a node's record is when it has left; nullopt: it is not known, or has left before.
  std::optional<cluster::v1::NodeRecord> record_of_left(const std::string& node) const;
  void leave(cluster::v1::NodeRecord record);
  /// A node that the store tells of. Its silence counts from now on.
  void remember(cluster::v1::NodeRecord record, Instant now);

  /// Names of nodes that have become lost since the last call, and of those whose jobs have.
  struct Changed {
    std::vector<std::string> lost, jobs_lost;
  };
  Changed look(Instant now);
  /// Silent for so long that what ran there counts as lost.
  bool is_given_up(const NodeView& node, Instant now) const {
    return now - node.seen >= config_.lost_after + config_.jobs_lost_after;
  }

  cluster::v1::ListNodesReply list(Instant now) const;
  const std::map<std::string, NodeView>& all() const { return nodes_; }
  int count_lost() const;

 private:
  NodesConfig config_;
  std::map<std::string, NodeView> nodes_;
};

}  // namespace plexrl::clustermgr
