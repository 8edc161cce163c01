#pragma once

#include <string>

#include "clustermgr/nodes.h"
#include "clustermgr/placements.h"

/// Reports, jobs and requests for tests; nothing here reads a clock.
namespace plexrl::clustermgr::test {

inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// A node with GPUs of 80 GiB, named "NODE-0" and so on, and plenty of host memory.
inline cluster::v1::ReportNodeRequest fake_report(const std::string& node, int gpus,
                                                  const std::string& kind = "H200") {
  cluster::v1::ReportNodeRequest report;
  report.set_node(node);
  report.mutable_inventory()->set_host_budget_bytes(1000 * kGiB);
  for (int i = 0; i < gpus; ++i) {
    cluster::v1::Gpu& gpu = *report.mutable_inventory()->add_gpus();
    gpu.set_uuid(node + "-" + std::to_string(i));
    gpu.set_index(i);
    gpu.set_name(kind);
    gpu.set_total_bytes(80 * kGiB);
    gpu.set_usable_bytes(80 * kGiB);
  }
  return report;
}

inline cluster::v1::Durations fake_durations(double s, double weight = 16) {
  cluster::v1::Durations durations;
  durations.set_weight(weight);
  durations.set_p10_s(s);
  durations.set_p50_s(s);
  durations.set_p90_s(s);
  return durations;
}

/// A job on GPU 0 that computes for `burst_s`, then not for `gap_s`; 0: nothing is known of it.
inline cluster::v1::Job fake_job(const std::string& id, const std::string& name, double burst_s = 0,
                                 double gap_s = 0) {
  cluster::v1::Job job;
  job.set_id(id + std::string(32 - id.size(), '0'));
  job.set_name(name);
  job.set_user("ann");
  job.set_promised_bytes(20 * kGiB);
  cluster::v1::Gang& gang = *job.add_gangs();
  gang.add_gpus(0);
  if (burst_s > 0) {
    *gang.mutable_bursts() = fake_durations(burst_s);
    *gang.mutable_gaps() = fake_durations(gap_s);
  }
  return job;
}

/// And its last bursts are known, all alike.
inline cluster::v1::Job fake_recorded_job(const std::string& name, double burst_s, double gap_s) {
  cluster::v1::Job job = fake_job("e", name, burst_s, gap_s);
  const auto ns = [](double s) { return static_cast<std::int64_t>(s * 1e9); };
  for (int i = 0; i < 12; ++i) {
    cluster::v1::Burst& burst = *job.mutable_gangs(0)->add_recent();
    burst.set_wanted_ns(ns(1000 + i * (burst_s + gap_s)));
    burst.set_ended_ns(burst.wanted_ns() + ns(burst_s));
    burst.set_work_ns(ns(burst_s));
  }
  return job;
}

inline cluster::v1::PlaceJobRequest fake_request(const std::string& id, const std::string& name,
                                                 int gpus = 1) {
  cluster::v1::PlaceJobRequest request;
  request.set_id(id + std::string(32 - id.size(), '0'));
  request.mutable_job()->set_user("ann");
  request.mutable_job()->set_name(name);
  request.mutable_job()->set_gpus(gpus);
  request.mutable_job()->set_nodes(1);
  request.mutable_job()->set_memory_bytes(20 * kGiB);
  return request;
}

inline void accept(Nodes& nodes, const cluster::v1::ReportNodeRequest& report,
                   Nodes::Instant now = Nodes::Instant{0}) {
  nodes.accept(report, nodes.outcome_of(report).record, now, 0);
}

}  // namespace plexrl::clustermgr::test
