#pragma once

#include <string>
#include <vector>

#include "nodemgr/jobs.h"
#include "nodemgr/leases.h"
#include "nodemgr/node.h"
#include "nodemgr/sessions.h"

namespace plexrl::nodemgr {

/// Opens the journal of the state folder and continues where the manager before left off: raises
/// the generation, brings back jobs whose plexrl-run or processes live, and awaits those processes.
/// A journal of an earlier boot, and what is damaged, is left behind. A folder that can't be
/// written to is a warning: then nothing survives a crash of this manager.
void recover(Node& node, Jobs& jobs, Sessions& sessions, Leases& leases);

/// Whether the node is being drained.
JournalRecord drain_record(const Node& node);

/// What an administrator has made of one quota, or that it is as in the settings file again.
JournalRecord quota_record(const QuotaChanges& changes, const QuotaChanges::Key& key);

/// Everything that a next manager must know, for a compact journal.
std::vector<JournalRecord> snapshot(const Node& node, const Leases& leases);

}  // namespace plexrl::nodemgr
