#pragma once

#include <chrono>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "nodemgr/leases.h"
#include "nodemgr/node.h"

namespace plexrl::nodemgr {

/// NCCL's communicators, and which processes of a job are ranks of which.
///
/// The kernel of a collective runs on each rank's GPU until all ranks have come, and can't be cut
/// before. Were each rank's GPU leased by itself, two jobs could each hold what the other's ranks
/// wait for, for good. So processes with a communicator in common are one gang, and their GPUs come
/// together or not at all (docs/architecture.md, invariant 5).
///
///                a rank says that it waits long
///     together ----------------------------------> meets:  apart <--> united
///              <----------------------------------
///                waits were short many times
///
/// Where they meet, a rank that is about to submit an operation asks first, and is answered when
/// all have come, or when the first of them has waited for `join_wait`; then they are united, and
/// the answer waits until their gang has all its GPUs or none. When all operations have ended they
/// are apart again, gangs by the GPUs that they share; so a rank that waits has a gap.
///
/// Every figure of a message is checked. Ranks that are no processes of this node's jobs are not
/// known here, and nobody waits for them.
class Communicators {
 public:
  Communicators(Node& node, Leases& leases);

  static bool is_for_me(wire::Type type);
  /// False: the packet is malformed.
  bool handle(Session& session, const Packet& packet);
  /// The process uses a GPU that it did not use before.
  void attached(Session& session);
  /// Its connection has gone: it does not wait for an answer any more.
  void lost(const Session& session);
  /// The process has gone.
  void ended(const Session& session);

 private:
  struct Name {
    JobKey job;
    std::uint64_t hi, lo;
    auto operator<=>(const Name&) const = default;
  };
  struct Rank {
    std::uint64_t submitted = 0;  ///< operations, as it says
    bool is_outstanding = false;  ///< some of them, or it was told that it may submit one
    std::uint64_t request = 0;    ///< of its kCommMeet that waits for an answer; 0: none
    std::chrono::nanoseconds since{0};
  };
  struct Communicator {
    wire::CommModes mode = wire::kTogether;
    bool stays = false;  ///< in mode kTogether
    bool united = true;  ///< where its ranks have GPUs they are of one gang
    std::chrono::nanoseconds ready_since{0};
    bool is_ready = false;  ///< who waits may go as soon as the gang has all or none
    int short_waits = 0;    ///< in a row
    std::map<SessionKey, Rank> ranks;
  };
  void join(Session& session, const Name& name);
  void leave(SessionKey session, const Name& name);
  void set_mode(const Name& name, Communicator& communicator, wire::CommModes mode);
  void at(Session& session, Communicator& communicator, const wire::CommAt& at,
          std::uint64_t meets);

  /// Does what is due; after each change, and after each step of the policy.
  void look();
  void look_at(const Name& name, Communicator& communicator, std::chrono::nanoseconds now);
  static bool have_come(const Communicator& communicator);
  bool has_all_or_none(const Communicator& communicator);
  void answer_joining();
  void answer(const Name& name, Communicator& communicator);
  bool unite(const Communicator& communicator);
  void part_what_is_apart();
  std::vector<std::set<SessionKey>> parts_of(const LeaseGang& gang) const;

  Node& node_;
  Leases& leases_;
  std::map<Name, Communicator> all_;
  struct Joining {
    SessionKey session;
    std::uint64_t request;
    wire::CommRef reference;
    std::chrono::nanoseconds since;
  };
  std::vector<Joining> joining_;  ///< wait for an answer
  bool some_apart_ = false;       ///< gangs may be larger than they need to be
  bool looking_ = false;
};

}  // namespace plexrl::nodemgr
