#include "tools/cluster/report.h"

#include <chrono>
#include <cmath>
#include <numeric>
#include <vector>

#include "tools/ctl/admin_client.h"
#include "tools/ctl/answer.h"

namespace plexrl::cluster_tool {
namespace {

namespace v1 = cluster::v1;
using ctl::array_of;
using ctl::Json;

/// 0 for what is absent, null or no number.
double number_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : 0;
}

std::uint64_t bytes_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_unsigned() ? it->get<std::uint64_t>() : 0;
}

bool is_on(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

Json object_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_object() ? *it : Json::object();
}

/// The row of an array whose `key` is that of `like`; an empty object when there is none.
Json row_like(const Json& rows, const char* key, const Json& value) {
  for (const Json& row : rows) {
    if (row.is_object() && row.value(key, Json()) == value) return row;
  }
  return Json::object();
}

void fill(v1::Durations& durations, const Json& json) {
  durations.set_weight(number_of(json, "weight"));
  durations.set_p10_s(number_of(json, "p10_s"));
  durations.set_p50_s(number_of(json, "p50_s"));
  durations.set_p90_s(number_of(json, "p90_s"));
}

void fill(v1::Inventory& inventory, const Json& status, const Json& learned) {
  const Json manager = object_of(status, "manager");
  inventory.set_host_budget_bytes(bytes_of(manager, "host_budget_bytes"));
  inventory.set_disk_budget_bytes(bytes_of(manager, "disk_budget_bytes"));
  inventory.set_generation(bytes_of(manager, "generation"));
  inventory.set_draining(is_on(manager, "draining"));
  inventory.set_simulated(is_on(status, "simulated"));
  for (const Json& row : array_of(status, "gpus")) {
    v1::Gpu& gpu = *inventory.add_gpus();
    gpu.set_uuid(ctl::text_of(row, "uuid"));
    gpu.set_index(static_cast<int>(number_of(row, "index")));
    gpu.set_name(ctl::text_of(row, "name"));
    gpu.set_total_bytes(bytes_of(row, "total_bytes"));
    gpu.set_usable_bytes(std::min(bytes_of(row, "budget_bytes"), gpu.total_bytes()));
    const Json link = row_like(array_of(learned, "links"), "gpu", row.value("index", Json()));
    gpu.set_out_bytes_s(number_of(link, "out_bytes_s"));
    gpu.set_in_bytes_s(number_of(link, "in_bytes_s"));
  }
}

/// Bursts as [wanted, ended, work], and the period that they show.
void fill_bursts(v1::Gang& gang, const Json& bursts) {
  std::vector<double> rounds;
  for (const Json& burst : bursts) {
    if (!burst.is_array() || burst.size() != 3 || !burst[0].is_number_integer() ||
        !burst[1].is_number_integer() || !burst[2].is_number_integer()) {
      continue;
    }
    const auto wanted = burst[0].get<std::int64_t>();
    if (gang.recent_size() > 0) {
      const v1::Burst& last = gang.recent(gang.recent_size() - 1);
      const std::int64_t wait = last.ended_ns() - last.wanted_ns() - last.work_ns();
      rounds.push_back(static_cast<double>(wanted - last.wanted_ns() - wait) * 1e-9);
    }
    v1::Burst& out = *gang.add_recent();
    out.set_wanted_ns(wanted);
    out.set_ended_ns(burst[1].get<std::int64_t>());
    out.set_work_ns(burst[2].get<std::int64_t>());
  }
  constexpr std::size_t kEnough = 3;
  if (rounds.size() < kEnough) return;
  const auto count = static_cast<double>(rounds.size());
  const double mean = std::accumulate(rounds.begin(), rounds.end(), 0.0) / count;
  double squares = 0;
  for (const double round : rounds) squares += (round - mean) * (round - mean) / count;
  if (mean <= 0) return;
  gang.set_period_s(mean);
  gang.set_period_cv(std::sqrt(squares) / mean);
}

void fill(v1::Gang& gang, const Json& row, const Json& learned) {
  gang.set_id(ctl::text_of(row, "id"));
  gang.set_state(ctl::text_of(row, "state"));
  gang.set_exclusive_reason(ctl::text_of(row, "exclusive_reason"));
  for (const Json& gpu : array_of(row, "gpus")) {
    if (gpu.is_number_integer()) gang.add_gpus(gpu.get<int>());
  }
  const Json known = row_like(array_of(learned, "gangs"), "id", row.value("id", Json()));
  fill(*gang.mutable_bursts(), object_of(known, "bursts"));
  fill(*gang.mutable_gaps(), object_of(known, "gaps"));
  fill_bursts(gang, array_of(known, "recent"));
}

void fill(v1::Job& job, const Json& row, const Json& learned) {
  job.set_id(ctl::text_of(row, "id"));
  job.set_name(ctl::text_of(row, "name"));
  job.set_user(ctl::text_of(row, "user"));
  job.set_team(ctl::text_of(row, "team"));
  job.set_priority(static_cast<int>(number_of(row, "priority")));
  job.set_state(ctl::text_of(row, "state"));
  job.set_promised_bytes(bytes_of(row, "promised_bytes"));
  job.set_hbm_bytes(bytes_of(row, "hbm_bytes"));
  job.set_host_bytes(bytes_of(row, "host_bytes"));
  job.set_disk_bytes(bytes_of(row, "disk_bytes"));
  job.set_unpageable_bytes(bytes_of(row, "unpageable_bytes"));
  for (const Json& gang : array_of(row, "gangs")) fill(*job.add_gangs(), gang, learned);
}

}  // namespace

absl::StatusOr<v1::ReportNodeRequest> make_report(const std::string& admin_socket,
                                                  const std::string& node) {
  const auto status = ctl::ask({admin_socket}, {{"verb", "status"}});
  if (!status.ok()) return status.status();
  const auto answer = ctl::ask({admin_socket}, {{"verb", "learned"}});
  if (!answer.ok()) return answer.status();
  const Json learned = object_of(*answer, "learned");
  v1::ReportNodeRequest report;
  report.set_node(node);
  fill(*report.mutable_inventory(), *status, learned);
  for (const Json& job : array_of(*status, "jobs")) fill(*report.add_jobs(), job, learned);
  report.set_sent_unix_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count());
  return report;
}

}  // namespace plexrl::cluster_tool
