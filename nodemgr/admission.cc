#include "nodemgr/admission.h"

#include <algorithm>
#include <functional>
#include <set>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

/// No driver maps less.
constexpr std::uint64_t kSmallest = 2 << 20;

using Counts = std::function<bool(const Job&)>;

QuotaUse::Node outside_of(const Node& node) {
  return {node.ledger.host_budget(), node.ledger.disk(),
          node.disk != nullptr ? node.disk->budget() : 0};
}

/// Of the admitted jobs of the team that count.
std::vector<QuotaUse::Promise> promises_to(const Node& node, const std::string& team,
                                           const Counts& counts) {
  std::vector<QuotaUse::Promise> promises;
  for (const auto& [key, job] : node.jobs) {
    if (!job->admitted || job->team != team || !counts(*job)) continue;
    promises.push_back({job->gpus, job->promised_bytes});
  }
  return promises;
}

QuotaUse use_of(const Node& node, const Team& team, const Counts& counts) {
  return {team.name, node.quota_changes.over(team.name, team.quotas), outside_of(node),
          promises_to(node, team.name, counts)};
}

std::vector<QuotaUse> quotas(const Node& node, const Job& job, const Counts& counts) {
  std::vector<QuotaUse> uses;
  std::vector<QuotaUse::Promise> own;
  if (job.admitted && counts(job)) own.push_back({job.gpus, job.promised_bytes});
  uses.push_back({std::nullopt, node.quota_changes.over(std::nullopt, node.options.job_quotas),
                  outside_of(node), own});
  const Team* const team = node.teams.find(job.team);
  if (team != nullptr) uses.push_back(use_of(node, *team, counts));
  return uses;
}

/// Within the quotas of which so much has been used.
Admission judge_within(const Ledger& ledger, const Job& job, const std::vector<QuotaUse>& uses) {
  Admission admission = ledger.judge(job.gpus, job.wanted_bytes, job.overhead);
  if (admission.never) return admission;
  const std::uint64_t needed = admission.needed;
  for (const QuotaUse& use : uses) {
    const std::uint64_t most = use.most(job.gpus);
    std::uint64_t least = job.wanted_bytes;
    // Who names no figure takes what is left, unless that is a small part of what could be.
    if (least == 0) {
      least = std::max(kSmallest, std::min(needed, use.most_alone(job.gpus) / 2));
    }
    if (most >= least) {
      if (most < admission.promised) admission = ledger.judge(job.gpus, most, job.overhead);
      continue;
    }
    admission.fits = false;
    admission.never = use.most_alone(job.gpus) < least;
    admission.needed = least;
    admission.available = most;
    admission.text = use.refusal(job.gpus, least);
    return admission;
  }
  return admission;
}

}  // namespace

std::vector<QuotaUse> quotas_before(const Node& node, const Job& job) {
  return quotas(node, job, [&](const Job& other) { return &other != &job; });
}

std::vector<QuotaUse> quotas_of(const Node& node, const Job& job) {
  return quotas(node, job, [](const Job&) { return true; });
}

QuotaUse quota_use(const Node& node, const Team& team) {
  return use_of(node, team, [](const Job&) { return true; });
}

std::optional<std::uint64_t> limit_of(const Node& node, const Job& job) {
  std::optional<std::uint64_t> limit;
  for (const QuotaUse& use : quotas_of(node, job)) {
    if (!use.any()) continue;
    const std::uint64_t most = use.most_alone(job.gpus);
    limit = std::min(limit.value_or(most), most);
  }
  return limit;
}

Admission judge(const Node& node, const Job& job) { return judge_by(node.ledger, node, job); }

Admission judge_by(const Ledger& ledger, const Node& node, const Job& job) {
  return judge_within(ledger, job, quotas_before(node, job));
}

std::optional<Admission> stuck_inside(const Node& node, const Job& job) {
  std::set<JobKey> around;
  for (JobKey key = job.parent; key != 0;) {
    auto it = node.jobs.find(key);
    key = it != node.jobs.end() && around.insert(key).second ? it->second->parent : 0;
  }
  auto parent = node.jobs.find(job.parent);
  if (parent == node.jobs.end()) return std::nullopt;
  // As if all others had ended.
  Ledger alone = node.ledger;
  for (const auto& [key, other] : node.jobs) {
    if (around.count(key) != 0) continue;
    alone.release(key);
    for (SessionKey session : other->sessions) alone.detach(session);
  }
  const auto is_around = [&](const Job& other) { return around.count(other.key) != 0; };
  Admission admission = judge_within(alone, job, quotas(node, job, is_around));
  if (admission.fits) return std::nullopt;
  admission.never = true;
  // The figures without the remedy, which is another one here.
  const std::string figures = admission.text.substr(0, admission.text.rfind(": "));
  admission.text = cat("it would wait for ever for job '", parent->second->name,
                       "', which it was started in and which ends after it (", figures,
                       "): be part of it with plexrl-run --join, or lower --memory");
  return admission;
}

}  // namespace plexrl::nodemgr
