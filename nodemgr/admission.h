#pragma once

#include <optional>
#include <vector>

#include "nodemgr/node.h"
#include "nodemgr/quotas.h"

/// What a job would be promised now: what the ledger leaves, within the quotas of its team and of
/// each job. Changes nothing.
namespace plexrl::nodemgr {

/// Those that the job is under, each with what has been promised of it, without this job.
std::vector<QuotaUse> quotas_before(const Node& node, const Job& job);
/// Likewise, with it if it has been admitted.
std::vector<QuotaUse> quotas_of(const Node& node, const Job& job);
/// The most that quotas ever let the job be promised on each of its GPUs; none: there are none.
std::optional<std::uint64_t> limit_of(const Node& node, const Job& job);
/// What has been promised to the jobs of a team, as its quotas count it.
QuotaUse quota_use(const Node& node, const Team& team);

Admission judge(const Node& node, const Job& job);
/// As if `ledger` were the node's.
Admission judge_by(const Ledger& ledger, const Node& node, const Job& job);

/// Does the job wait for one that it is inside of, and that therefore can't end before it? Then it
/// would wait for ever: a refusal.
std::optional<Admission> stuck_inside(const Node& node, const Job& job);

}  // namespace plexrl::nodemgr
