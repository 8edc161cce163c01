#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clustermgr/metrics.h"
#include "clustermgr/nodes.h"
#include "clustermgr/store.h"

namespace plexrl::clustermgr {

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
                                                                     NodesConfig nodes = {});

  Status status() const;

  /// A node tells of itself. What has to outlive us is stored before it counts.
  [[nodiscard]] absl::Status report(const cluster::v1::ReportNodeRequest& report);
  cluster::v1::ListNodesReply nodes() const;

  /// To be called about once a second: sees which nodes are lost. While the store can't be written
  /// it tries again, so that the manager is ready again once there is room.
  void tick();

 private:
  Cluster(Store& store, Metrics& metrics, NodesConfig nodes)
      : store_(store), metrics_(metrics), nodes_(nodes) {}
  absl::Status restore();
  absl::Status write(std::span<const Change> changes);
  void try_again();
  void look_for_lost();
  std::chrono::nanoseconds now() const { return std::chrono::steady_clock::now() - begin_; }

  Store& store_;
  Metrics& metrics_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string id_;
  std::uint64_t generation_ = 0;
  std::mutex reporting_;   ///< one report at a time: its write and what it changes belong together
  mutable std::mutex mu_;  ///< taken after `reporting_`; guards what follows, never held in a write
  Nodes nodes_;
  std::string not_ready_reason_;
};

}  // namespace plexrl::clustermgr
