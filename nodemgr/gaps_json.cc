#include "nodemgr/gaps_json.h"

#include <bit>
#include <cmath>

namespace plexrl::nodemgr {
namespace {

using Json = nlohmann::ordered_json;
using policy::Durations;
using policy::GapProfile;

constexpr double kMostWeight = 1e6;
constexpr double kLongestNs = 1e18;

Json durations_json(const Durations& durations) {
  Json json = Json::array();
  for (const auto& [number, bin] : durations.bins()) {
    json.push_back({number, bin.weight, bin.mean_ns});
  }
  return json;
}

/// A whole number from 0 to `last`, or −1.
int number_in(const Json& json, int last) {
  if (!json.is_number_integer()) return -1;
  const auto number = json.get<std::int64_t>();
  return number >= 0 && number <= last ? static_cast<int>(number) : -1;
}

bool is_within(const Json& json, double most) {
  if (!json.is_number()) return false;
  const double value = json.get<double>();
  return std::isfinite(value) && value >= 0 && value <= most;
}

Durations durations_from(const Json& json) {
  std::map<int, Durations::Bin> bins;
  for (const Json& bin : json) {
    if (!bin.is_array() || bin.size() != 3) continue;
    const int number = number_in(bin[0], Durations::kLastBin);
    if (number < 0 || !is_within(bin[1], kMostWeight) || !is_within(bin[2], kLongestNs)) continue;
    bins[number] = {bin[1].get<double>(), bin[2].get<double>()};
  }
  return Durations(std::move(bins));
}

Json array_at(const Json& object, const char* key) {
  auto it = object.is_object() ? object.find(key) : object.end();
  return it != object.end() && it->is_array() ? *it : Json::array();
}

GapProfile profile_from(const Json& json) {
  GapProfile::Tables tables;
  tables.all = durations_from(array_at(json, "gaps"));
  tables.bursts = durations_from(array_at(json, "bursts"));
  for (const Json& row : array_at(json, "gaps_after")) {
    const Json burst = row.is_object() ? row.value("burst", Json()) : Json();
    const Json gap = row.is_object() ? row.value("gap", Json()) : Json();
    const int burst_class = number_in(burst, GapProfile::kLastClass);
    const int gap_class = number_in(gap, GapProfile::kLastClass);
    if (burst_class < 0) continue;
    Durations gaps = durations_from(array_at(row, "gaps"));
    if (gap.is_null())
      tables.by_burst[burst_class] = std::move(gaps);
    else if (gap_class >= 0)
      tables.by_gap_and_burst[{gap_class, burst_class}] = std::move(gaps);
  }
  return GapProfile(std::move(tables));
}

}  // namespace

Json gaps_json(const GangGaps& gaps) {
  Json json = Json::array();
  for (const auto& [mask, profile] : gaps) {
    const GapProfile::Tables& tables = profile.tables();
    Json gang;
    gang["gpus"] = Json::array();
    for (int gpu = 0; gpu < policy::kMaxGpus; ++gpu) {
      if ((mask >> gpu & 1) != 0) gang["gpus"].push_back(gpu);
    }
    gang["gaps"] = durations_json(tables.all);
    gang["bursts"] = durations_json(tables.bursts);
    gang["gaps_after"] = Json::array();
    for (const auto& [burst, found] : tables.by_burst) {
      gang["gaps_after"].push_back({{"burst", burst}, {"gaps", durations_json(found)}});
    }
    for (const auto& [before, found] : tables.by_gap_and_burst) {
      gang["gaps_after"].push_back(
          {{"gap", before.first}, {"burst", before.second}, {"gaps", durations_json(found)}});
    }
    json.push_back(std::move(gang));
  }
  return json;
}

GangGaps gaps_from(const Json& json) {
  GangGaps gaps;
  if (!json.is_array()) return gaps;
  for (const Json& gang : json) {
    std::uint64_t mask = 0;
    for (const Json& gpu : array_at(gang, "gpus")) {
      const int index = number_in(gpu, policy::kMaxGpus - 1);
      if (index >= 0) mask |= std::uint64_t{1} << index;
    }
    if (mask != 0) gaps[mask] = profile_from(gang);
  }
  return gaps;
}

}  // namespace plexrl::nodemgr
