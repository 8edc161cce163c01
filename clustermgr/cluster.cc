#include "clustermgr/cluster.h"

#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"
#include "proto/cluster.pb.h"

namespace plexrl::clustermgr {
namespace {

using nodemgr::cat;
using nodemgr::LogLevel;

constexpr char kClusterKey[] = "cluster";

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::open(Store& store, Metrics& metrics) {
  std::unique_ptr<Cluster> cluster(new Cluster(store, metrics));
  const absl::StatusOr<std::optional<std::string>> stored = store.get(kClusterKey);
  if (!stored.ok()) return stored.status();
  cluster::v1::ClusterRecord record;
  if (*stored && !record.ParseFromString(**stored)) {
    return absl::DataLossError("the store's entry 'cluster' can't be read: put a backup in place");
  }
  if (record.cluster_id().empty()) record.set_cluster_id(nodemgr::id_text(nodemgr::random_id()));
  record.set_generation(record.generation() + 1);
  const Change changes[] = {{kClusterKey, record.SerializeAsString()}};
  absl::Status status = cluster->write(changes);
  if (!status.ok()) return status;
  cluster->id_ = record.cluster_id();
  cluster->generation_ = record.generation();
  return cluster;
}

Cluster::Status Cluster::status() const {
  const std::lock_guard lock(mu_);
  return {id_, generation_, not_ready_reason_, std::chrono::steady_clock::now() - begin_};
}

void Cluster::tick() {
  if (status().not_ready_reason.empty()) return;
  cluster::v1::ClusterRecord record;
  record.set_cluster_id(id_);
  record.set_generation(generation_);
  const Change changes[] = {{kClusterKey, record.SerializeAsString()}};
  if (write(changes).ok()) {
    nodemgr::log_line(LogLevel::kInfo, "store", "can be written again, ready");
  }
}

absl::Status Cluster::write(std::span<const Change> changes) {
  absl::Status status = store_.apply(changes);
  metrics_.count_store_write(status.ok());
  metrics_.set_ready(status.ok());
  const std::lock_guard lock(mu_);
  std::string reason = status.ok() ? "" : nodemgr::message_of(status);
  if (!status.ok() && reason != not_ready_reason_) {
    nodemgr::log_line(LogLevel::kError, "store", cat(reason, "; trying again each second"));
  }
  not_ready_reason_ = std::move(reason);
  return status;
}

}  // namespace plexrl::clustermgr
