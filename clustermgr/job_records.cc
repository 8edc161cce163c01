#include "clustermgr/job_records.h"

#include <algorithm>
#include <cmath>

namespace plexrl::clustermgr {
namespace {

namespace v1 = cluster::v1;
using Gangs = google::protobuf::RepeatedPtrField<v1::Gang>;

/// Three, the oldest of them counting a little less.
constexpr double kEnough = 2.9;
/// A change of its median by more than this share is something new.
constexpr double kSame = 0.25;

/// Swanson's rule: close to the mean for distributions with one hump, skewed ones too.
double mean_s(const v1::Durations& durations) {
  return 0.3 * durations.p10_s() + 0.4 * durations.p50_s() + 0.3 * durations.p90_s();
}

/// Of a normal distribution with these quantiles.
double deviation_s(const v1::Durations& durations) {
  return std::max(0.0, durations.p90_s() - durations.p10_s()) / 2.563;
}

bool is_known(const v1::Gang& gang) {
  return gang.bursts().weight() >= kEnough && gang.gaps().weight() >= kEnough;
}

double weight_of(const Gangs& gangs) {
  double sum = 0;
  for (const v1::Gang& gang : gangs) sum += gang.gaps().weight();
  return sum;
}

bool differs(double a, double b) { return std::abs(a - b) > kSame * std::max(a, b); }

bool differ(const Gangs& a, const Gangs& b) {
  if (a.size() != b.size()) return true;
  for (int i = 0; i < a.size(); ++i) {
    if (a[i].exclusive_reason().empty() != b[i].exclusive_reason().empty()) return true;
    if (differs(a[i].bursts().p50_s(), b[i].bursts().p50_s())) return true;
    if (differs(a[i].gaps().p50_s(), b[i].gaps().p50_s())) return true;
  }
  return false;
}

}  // namespace

std::optional<placement::UsualRound> usual_round(const Gangs& gangs) {
  if (gangs.empty()) return std::nullopt;
  double longest_s = 0;
  double duty = 0;
  double cv = 0;
  for (const v1::Gang& gang : gangs) {
    if (!is_known(gang)) return std::nullopt;
    const double burst_s = mean_s(gang.bursts());
    const double round_s = burst_s + mean_s(gang.gaps());
    if (!(round_s > 0)) return std::nullopt;
    duty += burst_s / round_s;
    if (round_s <= longest_s) continue;
    longest_s = round_s;
    cv = std::hypot(deviation_s(gang.bursts()), deviation_s(gang.gaps())) / round_s;
  }
  const double burst_s = std::min(duty, 1.0) * longest_s;
  return placement::UsualRound{placement::from_seconds(burst_s),
                               placement::from_seconds(longest_s - burst_s), cv};
}

std::vector<placement::Burst> recent_bursts(const Gangs& gangs) {
  std::vector<placement::Burst> all;
  for (const v1::Gang& gang : gangs) {
    for (const v1::Burst& burst : gang.recent()) {
      all.push_back({placement::Instant(burst.wanted_ns()), placement::Instant(burst.ended_ns()),
                     placement::Duration(burst.work_ns())});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.wanted < b.wanted; });
  std::vector<placement::Burst> joined;
  for (const placement::Burst& burst : all) {
    if (joined.empty() || burst.wanted > joined.back().ended) {
      joined.push_back(burst);
      continue;
    }
    placement::Burst& last = joined.back();
    last.ended = std::max(last.ended, burst.ended);
    last.work = std::min(last.work + burst.work, last.ended - last.wanted);
  }
  constexpr std::size_t kEnoughBursts = 4;
  if (joined.size() < kEnoughBursts) return {};
  const placement::Instant zero = joined.front().wanted;
  for (placement::Burst& burst : joined) {
    burst.wanted -= zero;
    burst.ended -= zero;
  }
  return joined;
}

std::optional<v1::JobRecord> JobRecords::news(const v1::Job& job, std::int64_t now_unix_ns) const {
  if (!usual_round(job.gangs())) return std::nullopt;
  const v1::JobRecord* const known = find(job.user(), job.name());
  if (known != nullptr && weight_of(job.gangs()) < 2 * weight_of(known->gangs()) &&
      !differ(job.gangs(), known->gangs())) {
    return std::nullopt;
  }
  v1::JobRecord record;
  record.set_user(job.user());
  record.set_name(job.name());
  *record.mutable_gangs() = job.gangs();
  record.set_promised_bytes(job.promised_bytes());
  int gpus = 0;
  for (const v1::Gang& gang : job.gangs()) gpus += gang.gpus_size();
  record.set_unpageable_bytes(job.unpageable_bytes() /
                              static_cast<std::uint64_t>(std::max(gpus, 1)));
  record.set_seen_unix_ns(now_unix_ns);
  return record;
}

void JobRecords::remember(v1::JobRecord record) {
  const auto key = std::pair(record.user(), record.name());
  records_[key] = std::move(record);
}

const v1::JobRecord* JobRecords::find(const std::string& user, const std::string& name) const {
  const auto it = records_.find({user, name});
  return it == records_.end() ? nullptr : &it->second;
}

std::optional<std::pair<std::string, std::string>> JobRecords::too_many() const {
  if (records_.size() <= kMost) return std::nullopt;
  return std::min_element(records_.begin(), records_.end(),
                          [](const auto& a, const auto& b) {
                            return a.second.seen_unix_ns() < b.second.seen_unix_ns();
                          })
      ->first;
}

}  // namespace plexrl::clustermgr
