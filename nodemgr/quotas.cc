#include "nodemgr/quotas.h"

#include <algorithm>
#include <bit>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::nodemgr {
namespace {

/// More than any node has; sums of some of them stay sums.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 56;

std::string size(std::uint64_t bytes) { return settings::format_bytes(bytes); }

std::uint64_t count_of(std::uint64_t gpus) {
  return static_cast<std::uint64_t>(std::popcount(gpus));
}

}  // namespace

const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::kHbm:
      return "hbm";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      break;
  }
  return "disk";
}

std::optional<std::uint64_t>& quota_of(Quotas& quotas, Tier tier) {
  if (tier == Tier::kHbm) return quotas.hbm;
  return tier == Tier::kHost ? quotas.host : quotas.disk;
}

Quotas QuotaChanges::over(const Whose& whose, Quotas of_file) const {
  for (const Tier tier : kTiers) {
    const auto change = changes_.find({whose, tier});
    if (change != changes_.end()) quota_of(of_file, tier) = change->second;
  }
  return of_file;
}

std::uint64_t QuotaUse::in_hbm(const std::vector<Promise>& promises) {
  std::uint64_t all = 0;
  for (const Promise& promise : promises) all |= promise.gpus;
  std::uint64_t sum = 0;
  for (std::uint64_t left = all; left != 0; left &= left - 1) {
    const std::uint64_t gpu = left & ~(left - 1);
    std::uint64_t largest = 0;
    for (const Promise& promise : promises) {
      if ((promise.gpus & gpu) != 0) largest = std::max(largest, promise.bytes);
    }
    sum += largest;
  }
  return sum;
}

std::uint64_t QuotaUse::outside(const std::vector<Promise>& promises) {
  std::uint64_t sum = 0;
  for (const Promise& promise : promises) sum += promise.bytes * count_of(promise.gpus);
  return sum;
}

std::uint64_t QuotaUse::allowed_outside(std::uint64_t disk) const {
  if (!quotas_.host && !quotas_.disk) return kUnlimited;
  return std::min(quotas_.host.value_or(kUnlimited), node_.host) +
         std::min(quotas_.disk.value_or(kUnlimited), disk);
}

std::uint64_t QuotaUse::most(std::uint64_t gpus, std::vector<Promise> others,
                             std::uint64_t disk) const {
  if (gpus == 0) return 0;
  const std::uint64_t allowed = allowed_outside(disk);
  const std::uint64_t promised = outside(others);
  const std::uint64_t left = promised < allowed ? (allowed - promised) / count_of(gpus) : 0;
  if (!quotas_.hbm) return left;
  // Promises of others that are larger leave room for one that is no larger: no formula.
  others.push_back({gpus, 0});
  std::uint64_t fits = 0;
  for (std::uint64_t step = std::bit_floor(left); step != 0; step /= 2) {
    others.back().bytes = fits + step;
    if (fits + step <= left && in_hbm(others) <= *quotas_.hbm) fits += step;
  }
  return fits;
}

std::uint64_t QuotaUse::most(std::uint64_t gpus) const { return most(gpus, promises_, node_.disk); }

std::uint64_t QuotaUse::most_alone(std::uint64_t gpus) const {
  return most(gpus, {}, std::max(node_.disk, node_.disk_budget));
}

std::string QuotaUse::holder() const { return team_ ? cat("team '", *team_, "'") : "a job"; }

std::string QuotaUse::outside_words() const {
  const auto part = [](const std::optional<std::uint64_t>& quota, std::uint64_t node,
                       const char* what) {
    if (quota) return cat(size(*quota), " of ", what);
    return cat("the node's ", size(node), " of ", what);
  };
  return cat(part(quotas_.host, node_.host, "host memory"), " and ",
             part(quotas_.disk, node_.disk, "disk"));
}

std::string QuotaUse::refusal(std::uint64_t gpus, std::uint64_t bytes) const {
  std::vector<Promise> with = promises_;
  with.push_back({gpus, bytes});
  const bool is_hbm = quotas_.hbm && in_hbm(with) > *quotas_.hbm;
  const std::uint64_t before = is_hbm ? in_hbm() : outside();
  const std::uint64_t then = is_hbm ? in_hbm(with) : outside(with);
  const bool is_never = bytes > most_alone(gpus);
  const std::string asks =
      cat("this one asks for ", size(bytes), gpus == (gpus & ~(gpus - 1)) ? "" : " on each of ",
          gpus == (gpus & ~(gpus - 1)) ? "" : cat(count_of(gpus), " GPUs"));
  std::string text =
      is_hbm ? cat(holder(), " may be promised ", size(*quotas_.hbm), " of HBM")
             : cat(holder(), " may have ", outside_words(),
                   " for all that it is promised, because all of it may have to leave HBM");
  if (team_) text += cat("; its jobs have been promised ", size(before));
  text += cat("; ", asks);
  if (team_) text += cat(", and it would be ", size(then));
  if (is_never) text += ", which will never fit";
  text += ": lower --memory, ";
  if (team_ && !is_never) text += "wait for a job of the team to end, ";
  text +=
      cat("or ask an administrator, who may give more with plexrl-ctl limits ",
          team_ ? cat("--team ", *team_) : "--each-job", " --", is_hbm ? "hbm" : "host", " SIZE");
  return text;
}

std::vector<std::string> QuotaUse::lines() const {
  std::vector<std::string> lines;
  if (quotas_.hbm) {
    lines.push_back(cat(holder(), " may be promised ", size(*quotas_.hbm), " of HBM; ",
                        team_ ? "its jobs have" : "this one has", " been promised ",
                        size(in_hbm())));
  }
  if (quotas_.host || quotas_.disk) {
    lines.push_back(cat(holder(), " may have ", outside_words(), " for all that it is promised; ",
                        team_ ? "its jobs have" : "this one has", " been promised ",
                        size(outside())));
  }
  return lines;
}

}  // namespace plexrl::nodemgr
