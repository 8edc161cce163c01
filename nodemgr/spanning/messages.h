#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nodemgr/policy/types.h"

/// What nodes and the coordinator tell each other of jobs over several nodes.
///
/// A *part* is the gang of such a job on one node, a *slot* the lease of all parts at once. The
/// coordinator leads each slot through the steps below. It goes to the next one when every part has
/// said that it is done with this one, so no part is ever more than a step ahead of another.
///
///     kBar ──▶ kCall ──▶ kTake ──▶ kCommit ──▶ kStart ──▶ kWithdraw ──▶ kBar
///      ▲         │         │           │          ▲            │
///      └─────────┴─────────┴───────────┘          └────────────┘ a part could not drain
///
/// Both sides always tell all that holds, not what has changed: a message that is lost is made good
/// by the next, one that is repeated says nothing new, and one that is late is known by its number.
namespace plexrl::nodemgr::spanning {

using policy::Duration;
using policy::GpuMask;
using policy::Instant;
using policy::Release;

/// What a part is to do. Done means:
enum class Verb : std::uint8_t {
  kBar,       ///< no lease. It has none
  kCall,      ///< prepare: say when it is its turn here; nothing is kept. It is, or it has its GPUs
  kTake,      ///< vote: get the GPUs, now. They are kept: yes, and a lease will follow if told so.
              ///< Failed: no, and they are kept no longer
  kCommit,    ///< lease, gates closed. It has the lease and its memory
  kStart,     ///< gates open. They are
  kWithdraw,  ///< drain. Gates are closed and nothing is outstanding, or it had no lease. Failed:
              ///< something could not drain, and the gates are open again
};
const char* verb_name(Verb verb);

struct Order {
  std::string job;         ///< by its id in the cluster
  std::uint64_t slot = 0;  ///< 0: there was none yet
  Verb verb = Verb::kBar;
  std::uint32_t attempt = 0;  ///< kWithdraw: which of this slot
  std::string why;            ///< what the slot waits for, in words
  bool operator==(const Order&) const = default;
};

struct PartReport {
  std::string job;
  int nodes = 1;  ///< over which the job runs
  GpuMask gpus = 0;
  bool wants = false;  ///< a thread waits at the gate
  bool holds = false;  ///< it has a lease
  bool idle = true;
  Release release = Release::kNone;  ///< whether others of the node wait for its GPUs
  // The order that it acts on, and what has come of it.
  std::uint64_t slot = 0;
  Verb verb = Verb::kBar;
  std::uint32_t attempt = 0;
  bool done = false, failed = false;
  std::string why;  ///< it is not done
};

/// All parts of a node.
struct NodeReport {
  std::string node;
  std::uint64_t boot = 0;  ///< drawn by chance at each start of a node manager
  std::uint64_t number = 0;
  std::vector<PartReport> parts;
};

/// The answer: an order for each of them.
struct NodeOrders {
  std::uint64_t generation = 0;  ///< of the coordinator; grows
  std::uint64_t number = 0;      ///< grows within a generation
  std::uint64_t boot = 0;        ///< of whom it is for
  std::vector<Order> orders;
};

}  // namespace plexrl::nodemgr::spanning
