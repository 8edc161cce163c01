#pragma once

#include <chrono>
#include <string>

#include "nodemgr/leases.h"
#include "nodemgr/node.h"
#include "nodemgr/observer_link.h"

namespace plexrl::nodemgr {

/// What the administration socket answers with, beside the node itself.
struct AdminContext {
  const Node& node;
  const Leases& leases;
  std::string socket;
  std::chrono::nanoseconds started{0};
  std::chrono::nanoseconds now{0};  ///< all figures of an answer are of this moment
  const ObserverLink* observer = nullptr;
};

/// One JSON object on one line for a request such as {"verb":"jobs"}: docs/contract.md's `--json`
/// payloads. What is wrong with a request is said in {"error": …}. Verbs: status jobs gpus memory
/// limits, explain (with "job": ID), usage (perhaps with "since": Unix seconds, "by": "team",
/// "user" or "job").
std::string admin_answer(const AdminContext& context, const std::string& request);

/// Is it {"verb":"reload"}? Then the caller reloads, and answers with admin_outcome.
bool is_reload(const std::string& request);
/// Is it about the accounts? Then the caller writes what has come about since
/// (Node::keep_accounts).
bool is_usage(const std::string& request);
/// {"done": true}, with the job that was changed, or what went wrong in {"error": …}.
std::string admin_outcome(const AdminContext& context, const absl::Status& status,
                          const Job* changed = nullptr);

}  // namespace plexrl::nodemgr
