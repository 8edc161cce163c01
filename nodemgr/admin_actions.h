#pragma once

#include <optional>
#include <string>

#include "nodemgr/admin_answers.h"
#include "nodemgr/jobs.h"

namespace plexrl::nodemgr {

/// What the verbs that change something change.
struct AdminActions {
  Node& node;
  Jobs& jobs;
  Leases& leases;
};

/// Carries out {"verb":"pause","job":ID}, resume, priority (with "priority": 0..100), hold
/// (with "alone_ns": for how long no other job has its GPUs; 0 ends it), drain or undrain, and
/// steps the policy. The answer is {"done": true, "jobs": [the job as it is now]} or
/// {"error": …}; none when the verb is another. So it does {"verb":"limits", "set": …}
/// (admin_parts.h), which is answered as limits are. What is set survives this manager (the
/// journal).
///
/// Who may connect to the administration socket may do all of it, with every job of the node.
std::optional<std::string> admin_act(const AdminContext& context, const AdminActions& actions,
                                     const std::string& request);

}  // namespace plexrl::nodemgr
