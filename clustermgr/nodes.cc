#include "clustermgr/nodes.h"

#include <google/protobuf/util/message_differencer.h>

#include <cmath>
#include <set>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::clustermgr {
namespace {

namespace v1 = cluster::v1;
using nodemgr::cat;
using nodemgr::invalid;
using nodemgr::settings::format_bytes;

constexpr int kMostGpus = 64;
constexpr int kMostJobs = 10'000;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;
constexpr std::size_t kLongestText = 512;

absl::Status check_gpu(const v1::Gpu& gpu) {
  if (gpu.total_bytes() == 0 || gpu.total_bytes() > kMostBytes) {
    return invalid("GPU ", gpu.index(), " has ", format_bytes(gpu.total_bytes()));
  }
  if (gpu.usable_bytes() > gpu.total_bytes()) {
    return invalid("GPU ", gpu.index(), " of ", format_bytes(gpu.total_bytes()), " has ",
                   format_bytes(gpu.usable_bytes()), " for jobs");
  }
  return absl::OkStatus();
}

bool is_finite(double value) { return std::isfinite(value) && value >= 0; }

/// Whether its bursts lie one after the other.
bool are_possible(const v1::Gang& gang) {
  constexpr int kMostBursts = 256;
  constexpr std::int64_t kLatest = std::int64_t{1} << 61;
  if (gang.recent_size() > kMostBursts) return false;
  if (!is_finite(gang.period_s()) || !is_finite(gang.period_cv())) return false;
  std::int64_t before = 0;
  for (const v1::Burst& burst : gang.recent()) {
    if (burst.wanted_ns() < before || burst.ended_ns() < burst.wanted_ns()) return false;
    if (burst.ended_ns() > kLatest || burst.work_ns() < 0) return false;
    if (burst.work_ns() > burst.ended_ns() - burst.wanted_ns()) return false;
    before = burst.ended_ns();
  }
  return true;
}

absl::Status check_job(const v1::Job& job, std::uint64_t largest, std::uint64_t hbm,
                       const std::set<int>& gpus) {
  if (job.id().size() != 32 || job.name().size() > kLongestText ||
      job.user().size() > kLongestText || job.team().size() > kLongestText) {
    return invalid("a job's id is not 32 digits, or its name, user or team above 512 bytes");
  }
  if (job.promised_bytes() > largest || job.hbm_bytes() > hbm) {
    return invalid("job ", job.id(), " has been promised ", format_bytes(job.promised_bytes()),
                   " and has ", format_bytes(job.hbm_bytes()), " in HBM, on GPUs of at most ",
                   format_bytes(largest), ", ", format_bytes(hbm), " together");
  }
  for (const v1::Gang& gang : job.gangs()) {
    for (const int gpu : gang.gpus()) {
      if (!gpus.contains(gpu)) return invalid("job ", job.id(), " runs on GPU ", gpu);
    }
    if (!are_possible(gang)) {
      return invalid("job ", job.id(), " had bursts that end before they begin, overlap, or ",
                     "contain more work than time; or a period that is no time");
    }
  }
  return absl::OkStatus();
}

/// What is worth a write: not figures that change all the time, which each report has again.
v1::NodeRecord lasting(v1::NodeRecord record) {
  for (v1::Gpu& gpu : *record.mutable_inventory()->mutable_gpus()) {
    gpu.clear_usable_bytes();
    gpu.clear_out_bytes_s();
    gpu.clear_in_bytes_s();
  }
  for (v1::Job& job : *record.mutable_jobs()) {
    job.clear_state();
    job.clear_hbm_bytes();
    job.clear_host_bytes();
    job.clear_disk_bytes();
    job.clear_unpageable_bytes();
    job.clear_gangs();
  }
  return record;
}

double in_seconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) * 1e-9;
}

}  // namespace

absl::Status Nodes::check(const v1::ReportNodeRequest& report) {
  const v1::Inventory& inventory = report.inventory();
  if (inventory.gpus_size() == 0 || inventory.gpus_size() > kMostGpus ||
      report.jobs_size() > kMostJobs || inventory.host_budget_bytes() > kMostBytes ||
      inventory.disk_budget_bytes() > kMostBytes) {
    return invalid("node ", report.node(), " reports ", inventory.gpus_size(), " GPUs, ",
                   report.jobs_size(), " jobs, ", format_bytes(inventory.host_budget_bytes()),
                   " of host memory and ", format_bytes(inventory.disk_budget_bytes()),
                   " of disk, which can't be: 1 to 64 GPUs, at most 10000 jobs, 1024 TiB");
  }
  std::set<int> indexes;
  std::uint64_t largest = 0;
  std::uint64_t hbm = 0;
  for (const v1::Gpu& gpu : inventory.gpus()) {
    absl::Status status = check_gpu(gpu);
    if (status.ok() && !indexes.insert(gpu.index()).second) {
      status = invalid("GPU ", gpu.index(), " is there twice");
    }
    if (!status.ok()) {
      return invalid("node ", report.node(),
                     " reports what can't be: ", nodemgr::message_of(status));
    }
    largest = std::max(largest, gpu.total_bytes());
    hbm += gpu.total_bytes();
  }
  for (const v1::Job& job : report.jobs()) {
    const absl::Status status = check_job(job, largest, hbm, indexes);
    if (!status.ok()) {
      return invalid("node ", report.node(),
                     " reports what can't be: ", nodemgr::message_of(status));
    }
  }
  return absl::OkStatus();
}

Nodes::Outcome Nodes::outcome_of(const v1::ReportNodeRequest& report) const {
  Outcome outcome;
  outcome.record.set_name(report.node());
  *outcome.record.mutable_inventory() = report.inventory();
  *outcome.record.mutable_jobs() = report.jobs();
  const auto known = nodes_.find(report.node());
  outcome.changes =
      known == nodes_.end() || !google::protobuf::util::MessageDifferencer::Equals(
                                   lasting(known->second.record), lasting(outcome.record));
  return outcome;
}

void Nodes::accept(const v1::ReportNodeRequest& report, v1::NodeRecord record, Instant now,
                   std::int64_t now_unix_ns) {
  NodeView& node = nodes_[report.node()];
  node.record = std::move(record);
  node.seen = now;
  node.lost = false;
  node.clock_ahead_s = in_seconds(std::chrono::nanoseconds(report.sent_unix_ns() - now_unix_ns));
}

std::optional<v1::NodeRecord> Nodes::record_of_left(const std::string& node) const {
  const auto known = nodes_.find(node);
  if (known == nodes_.end() || known->second.record.left()) return std::nullopt;
  v1::NodeRecord record = known->second.record;
  record.set_left(true);
  record.set_jobs_lost(false);
  record.clear_jobs();
  return record;
}

void Nodes::leave(v1::NodeRecord record) {
  NodeView& node = nodes_.at(record.name());
  node.lost = false;
  node.record = std::move(record);
}

void Nodes::remember(v1::NodeRecord record, Instant now) {
  NodeView& node = nodes_[record.name()];
  node.seen = now;
  node.record = std::move(record);
}

Nodes::Changed Nodes::look(Instant now) {
  Changed changed;
  for (auto& [name, node] : nodes_) {
    const Instant silent = now - node.seen;
    if (node.record.left()) continue;
    if (!node.lost && silent >= config_.lost_after) {
      node.lost = true;
      changed.lost.push_back(name);
    }
    if (node.lost && !node.record.jobs_lost() && node.record.jobs_size() > 0 &&
        is_given_up(node, now)) {
      node.record.set_jobs_lost(true);
      changed.jobs_lost.push_back(name);
    }
  }
  return changed;
}

int Nodes::count_lost() const {
  int lost = 0;
  for (const auto& [name, node] : nodes_) lost += node.lost ? 1 : 0;
  return lost;
}

v1::ListNodesReply Nodes::list(Instant now) const {
  v1::ListNodesReply reply;
  for (const auto& [name, node] : nodes_) {
    v1::Node& out = *reply.add_nodes();
    out.set_name(name);
    out.set_state(node.record.left() ? v1::Node::LEFT
                  : node.lost        ? v1::Node::LOST
                                     : v1::Node::JOINED);
    out.set_silent_s(in_seconds(now - node.seen));
    out.set_clock_ahead_s(node.clock_ahead_s);
    out.set_jobs_lost(node.record.jobs_lost());
    *out.mutable_inventory() = node.record.inventory();
    *out.mutable_jobs() = node.record.jobs();
  }
  return reply;
}

}  // namespace plexrl::clustermgr
