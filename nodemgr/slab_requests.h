#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <set>

#include "nodemgr/leases.h"
#include "nodemgr/node.h"

namespace plexrl::nodemgr {

/// Slabs for the processes that ask for them.
///
/// While the host budget lasts each gets one, as soon as it has been made. When it is used up and
/// memory of the asker is on its way out of HBM, others are asked for slabs that hold no evicted
/// bytes (kept copies only): promises are good for evicted bytes, not for copies. Who loads gives
/// them back as it goes on. The request waits for that as long as kPatience, and is refused then;
/// the chunk stays in HBM, and the policy asks for it again. Where there is a disk tier nobody
/// waits: the chunk goes there, and what others give back serves the next ones.
class SlabRequests {
 public:
  SlabRequests(Node& node, const Leases& leases) : node_(node), leases_(leases) {}

  /// kSlabRequest, checked.
  void ask(Session& session, std::uint64_t bytes, std::uint64_t request);
  /// kSlabReturn, checked and done.
  void given_back(const Session& session);
  /// A session has ended: slabs may be free now.
  void ended(SessionKey session);
  /// Its connection is gone: nobody waits there any more.
  void forget(SessionKey session);
  /// Those that are ready go to those who asked.
  void hand_out();

  static constexpr std::chrono::milliseconds kPatience{500};

 private:
  struct Waiting {
    SessionKey session;
    std::uint64_t bytes;
    std::uint64_t request;
    std::chrono::nanoseconds until;
  };

  void serve_waiting();
  /// False: nobody has any to give.
  bool recall(const Session& asker, std::uint64_t bytes);
  void refuse(Session& session, std::uint64_t bytes, std::uint64_t request);
  void refuse_overdue();

  Node& node_;
  const Leases& leases_;
  std::list<Waiting> waiting_;
  std::set<SessionKey> owing_;  ///< were asked and have given nothing back since
};

}  // namespace plexrl::nodemgr
