#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clustermgr/metrics.h"
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
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Cluster>> open(Store& store,
                                                                     Metrics& metrics);

  Status status() const;

  /// To be called about once a second. While the store can't be written it tries again, so that
  /// the manager is ready again once there is room.
  void tick();

 private:
  Cluster(Store& store, Metrics& metrics) : store_(store), metrics_(metrics) {}
  absl::Status write(std::span<const Change> changes);

  Store& store_;
  Metrics& metrics_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string id_;
  std::uint64_t generation_ = 0;
  mutable std::mutex mu_;
  std::string not_ready_reason_;
};

}  // namespace plexrl::clustermgr
