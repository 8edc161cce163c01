#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clustermgr/chooser.h"
#include "clustermgr/job_records.h"
#include "clustermgr/metrics.h"
#include "clustermgr/nodes.h"
#include "clustermgr/placements.h"
#include "clustermgr/store.h"

namespace plexrl::clustermgr {

struct ClusterConfig {
  NodesConfig nodes;
  ChooserConfig chooser;
  std::chrono::nanoseconds requester_lost_after{std::chrono::seconds(30)};
};

/// What the cluster manager knows, and what of it is in the store. Nothing of gRPC here; any
/// thread.
class Cluster {
 public:
  struct Status {
    std::string cluster_id;
    std::uint64_t generation = 0;
    std::string not_ready_reason;  ///< "" while it is ready
    std::chrono::nanoseconds uptime{0};
  };

  /// Counts this start in the store; the store and `metrics` must outlive it.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Cluster>> open(Store& store, Metrics& metrics,
                                                                     ClusterConfig config = {});

  Status status() const;

  /// A node tells of itself. What has to outlive us is stored before it counts.
  [[nodiscard]] absl::Status report(const cluster::v1::ReportNodeRequest& report);
  cluster::v1::ListNodesReply nodes() const;

  /// Where a job may run, or how its request stands (proto/cluster.proto, PlaceJob). One of another
  /// user is PermissionDenied.
  [[nodiscard]] absl::StatusOr<cluster::v1::Placement> place(
      const cluster::v1::PlaceJobRequest& request);
  /// The job will not start, or is over. `user`: whose it has to be; empty: anybody's. One that is
  /// not there has ended.
  [[nodiscard]] absl::Status end_placement(const cluster::v1::EndPlacementRequest& request,
                                           const std::string& user);
  [[nodiscard]] absl::StatusOr<cluster::v1::Placement> placement(const std::string& job) const;

  /// To be called about once a second: sees which nodes and requesters are lost. While the store
  /// can't be written it tries again, so that the manager is ready again once there is room.
  void tick();

 private:
  Cluster(Store& store, Metrics& metrics, ClusterConfig config)
      : store_(store),
        metrics_(metrics),
        nodes_(config.nodes),
        placements_(config.requester_lost_after),
        chooser_(std::move(config.chooser)) {}
  absl::Status restore();
  absl::Status restore_placements();
  absl::Status write(std::span<const Change> changes);
  void try_again();
  absl::Status leave(const std::string& node);
  void look_for_lost();
  void replay();
  void count_for_metrics();

  // cluster_placements.cc; all with `changing_` held.
  absl::StatusOr<cluster::v1::Placement> place_newcomer(
      const cluster::v1::PlaceJobRequest& request);
  cluster::v1::Placement decide(cluster::v1::Placement record);
  absl::Status settle(const Placements::Records& records);
  void add_news(const cluster::v1::ReportNodeRequest& report,
                std::vector<cluster::v1::JobRecord>& news, std::vector<Change>& changes) const;
  void take_news(std::vector<cluster::v1::JobRecord> news);
  void end_unwanted();
  void run_queue();

  std::chrono::nanoseconds now() const { return std::chrono::steady_clock::now() - begin_; }

  Store& store_;
  Metrics& metrics_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string id_;
  std::uint64_t generation_ = 0;
  std::mutex changing_;    ///< one change at a time: its write and what it changes belong together
  mutable std::mutex mu_;  ///< taken after `changing_`; guards what follows, never held in a write.
                           ///< What changes it holds both, so either is enough to read.
  Nodes nodes_;
  Placements placements_;
  std::string not_ready_reason_;

  // With `changing_` held.
  JobRecords records_;
  Chooser chooser_;
  bool is_queue_due_ = true;  ///< something has changed since all that wait were looked at
  int ticks_ = 0;
};

}  // namespace plexrl::clustermgr
