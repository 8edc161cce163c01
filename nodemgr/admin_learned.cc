#include "nodemgr/admin_learned.h"

#include "nodemgr/ids.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

Json durations_json(const policy::Durations& durations) {
  Json json;
  json["weight"] = durations.weight();
  json["p10_s"] = in_seconds(durations.quantile(0.1));
  json["p50_s"] = in_seconds(durations.quantile(0.5));
  json["p90_s"] = in_seconds(durations.quantile(0.9));
  return json;
}

/// [wanted, ended, work] of each, ns of boot time.
Json bursts_json(const std::deque<RecentBursts::Burst>& bursts) {
  Json list = Json::array();
  for (const RecentBursts::Burst& burst : bursts) {
    list.push_back({burst.wanted.count(), burst.ended.count(), burst.work.count()});
  }
  return list;
}

double bytes_s(double ns_per_byte) { return ns_per_byte > 0 ? 1e9 / ns_per_byte : 0; }

}  // namespace

void add_learned(Json& json, const AdminContext& context) {
  const policy::State& state = context.leases.state();
  Json gangs = Json::array();
  for (const auto& [id, gang] : context.leases.gangs()) {
    auto known = state.gangs.find(gang.id);
    if (known == state.gangs.end()) continue;
    Json row;
    row["job"] = id_text(gang.job->id);
    row["id"] = cat(static_cast<std::uint64_t>(gang.id));
    row["bursts"] = durations_json(known->second.profile.bursts());
    row["gaps"] = durations_json(known->second.profile.gaps());
    row["recent"] = bursts_json(context.leases.recent_bursts().of(gang.id));
    gangs.push_back(row);
  }
  Json links = Json::array();
  for (const auto& [index, gpu] : state.gpus) {
    links.push_back({{"gpu", index},
                     {"out_bytes_s", bytes_s(gpu.out_ns_per_byte)},
                     {"in_bytes_s", bytes_s(gpu.in_ns_per_byte)}});
  }
  json["learned"] = {{"gangs", gangs}, {"links", links}};
}

}  // namespace plexrl::nodemgr
