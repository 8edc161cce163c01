#include "clustermgr/cluster.h"

#include "clustermgr/unix_time.h"
#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"
#include "proto/cluster.pb.h"

namespace plexrl::clustermgr {
namespace {

using nodemgr::cat;
using nodemgr::LogLevel;

constexpr char kClusterKey[] = "cluster";
constexpr char kNodePrefix[] = "node/";

/// Without recent bursts, which each report has again.
Change change_of(cluster::v1::NodeRecord record) {
  for (cluster::v1::Job& job : *record.mutable_jobs()) {
    for (cluster::v1::Gang& gang : *job.mutable_gangs()) gang.clear_recent();
  }
  return {kNodePrefix + record.name(), record.SerializeAsString()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::open(Store& store, Metrics& metrics,
                                                       ClusterConfig config) {
  std::unique_ptr<Cluster> cluster(new Cluster(store, metrics, std::move(config)));
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
  metrics.set_generation(record.generation());
  status = cluster->restore();
  if (!status.ok()) return status;
  cluster->count_for_metrics();
  return cluster;
}

Cluster::Status Cluster::status() const {
  const std::lock_guard lock(mu_);
  return {id_, generation_, not_ready_reason_, std::chrono::steady_clock::now() - begin_};
}

absl::Status Cluster::restore() {
  const auto stored = store_.list(kNodePrefix);
  if (!stored.ok()) return stored.status();
  for (const auto& [key, value] : *stored) {
    cluster::v1::NodeRecord record;
    if (!record.ParseFromString(value)) {
      return absl::DataLossError(
          cat("the store's entry '", key, "' can't be read: put a backup in place"));
    }
    nodes_.remember(std::move(record), now());
  }
  return restore_placements();
}

absl::Status Cluster::leave(const std::string& node) {
  const std::lock_guard one(changing_);
  std::optional<cluster::v1::NodeRecord> record = nodes_.record_of_left(node);
  if (!record) return absl::OkStatus();
  const Change changes[] = {change_of(*record)};
  const absl::Status status = write(changes);
  if (!status.ok()) return status;
  {
    const std::lock_guard lock(mu_);
    nodes_.leave(*std::move(record));
  }
  nodemgr::log_line(LogLevel::kInfo, "nodes", cat("left node='", node, "'"));
  is_queue_due_ = true;
  // Those that ran have ended, or it would not leave; one that is to start there may still do so,
  // with the next node manager. A failure is seen in readiness.
  settle(placements_.ended_with(node, unix_ns())).IgnoreError();
  run_queue();
  return absl::OkStatus();
}

absl::Status Cluster::report(const cluster::v1::ReportNodeRequest& report) {
  if (report.leaving()) return leave(report.node());
  absl::Status status = Nodes::check(report);
  if (!status.ok()) return status;
  const std::lock_guard one(changing_);
  Nodes::Outcome outcome = nodes_.outcome_of(report);
  const auto known = nodes_.all().find(report.node());
  const bool is_back =
      known == nodes_.all().end() || known->second.lost || known->second.record.left();
  std::vector<Change> changes;
  if (outcome.changes) changes.push_back(change_of(outcome.record));
  std::vector<cluster::v1::JobRecord> news;
  add_news(report, news, changes);
  if (!changes.empty()) {
    status = write(changes);
    if (!status.ok()) return status;
  }
  if (is_back)
    nodemgr::log_line(LogLevel::kInfo, "nodes", cat("joined node='", report.node(), "'"));
  is_queue_due_ |= outcome.changes || is_back || !news.empty();
  Placements::Records over;
  {
    const std::lock_guard lock(mu_);
    nodes_.accept(report, std::move(outcome.record), now(), unix_ns());
    over = placements_.ended_by(report, unix_ns());
  }
  take_news(std::move(news));
  // A failure is said and seen in readiness; the next report ends them again.
  settle(over).IgnoreError();
  run_queue();
  return absl::OkStatus();
}

cluster::v1::ListNodesReply Cluster::nodes() const {
  const std::lock_guard lock(mu_);
  return nodes_.list(now());
}

void Cluster::tick() {
  try_again();
  replay();
  const std::lock_guard one(changing_);
  look_for_lost();
  // What is usable of a GPU changes without an event.
  constexpr int kLookAgain = 10;
  is_queue_due_ |= ++ticks_ % kLookAgain == 0;
  run_queue();
  count_for_metrics();
}

/// A few at a time, and decisions in between.
void Cluster::replay() {
  constexpr int kAtATick = 16;
  for (int i = 0; i < kAtATick; ++i) {
    const std::lock_guard one(changing_);
    if (!chooser_.replay_one()) return;
    is_queue_due_ = true;
  }
}

void Cluster::look_for_lost() {
  Nodes::Changed changed;
  std::vector<Change> changes;
  {
    const std::lock_guard lock(mu_);
    changed = nodes_.look(now());
    for (const std::string& name : changed.jobs_lost) {
      changes.push_back(change_of(nodes_.all().at(name).record));
    }
  }
  for (const std::string& name : changed.lost) {
    nodemgr::log_line(
        LogLevel::kWarning, "nodes",
        cat("lost node='", name, "', waiting for it: is it up, and its node manager?"));
  }
  for (const std::string& name : changed.jobs_lost) {
    nodemgr::log_line(LogLevel::kWarning, "nodes",
                      cat("the jobs of node='", name, "' count as lost, unless it comes back"));
  }
  // A failure is said and seen in readiness; after a restart the grace time begins again.
  if (!changes.empty()) write(changes).IgnoreError();
  end_unwanted();
}

void Cluster::count_for_metrics() {
  const std::lock_guard lock(mu_);
  int joined = 0, gpus = 0;
  std::map<std::string, int> jobs, placements;
  for (const auto& [name, node] : nodes_.all()) {
    if (node.record.left()) continue;
    if (!node.lost) {
      ++joined;
      gpus += node.record.inventory().gpus_size();
    }
    for (const cluster::v1::Job& job : node.record.jobs()) {
      ++jobs[node.record.jobs_lost() ? "lost" : job.state()];
    }
  }
  for (const auto& [id, placement] : placements_.all()) {
    if (placement.is_waiting()) ++placements["queued"];
    if (placement.record.state() == cluster::v1::Placement::PLACED) ++placements["placed"];
    if (placement.record.state() == cluster::v1::Placement::RUNNING) ++placements["running"];
  }
  metrics_.set_nodes(joined, nodes_.count_lost(), gpus);
  metrics_.set_jobs(jobs);
  metrics_.set_placements(placements);
}

void Cluster::try_again() {
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
