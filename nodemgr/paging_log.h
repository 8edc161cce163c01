#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>

#include "nodemgr/node.h"
#include "nodemgr/switch_log.h"
#include "nodemgr/trace.h"
#include "shim/wire.h"

namespace plexrl::nodemgr {

/// What each process was asked to move, and from when to when it did: a paging record for each
/// (proto/trace.proto). Times are boot time, as all processes of a node read it.
///
/// A window has two pairs of times. The manager takes when it asked and when it was told: no
/// process can make these wrong, and as the gates of a gang are closed before it is asked to leave
/// and stay so until all have answered, nothing of the gang runs in between. The process takes when
/// it began and ended: tighter round the copies, but its word only, so it is kept inside the
/// manager's pair.
///
/// A process answers in the order in which it was asked. What it does not answer ends with it, with
/// its connection, or with its lease.
class PagingLog {
 public:
  using Instant = std::chrono::nanoseconds;

  PagingLog(TraceWriter& trace, SwitchLog& switches) : trace_(trace), switches_(switches) {}

  /// kEvict was sent, for the change of holder `for_switch` (SwitchLog::evicting).
  void evicting(const Session& session, int gpu, wire::Epoch last_lease, std::uint64_t for_switch,
                Instant now);
  /// Here and in `loaded` the session's `paged` and `disk_paged` have the rest.
  void evicted(const Session& session, const wire::Evicted& evicted, Instant now);

  /// kGrant was sent and the process has to load. One that is asked anew begins again.
  void loading(const Session& session, std::uint64_t gpus, wire::Epoch epoch, Instant now);
  void loaded(const Session& session, const wire::Loaded& loaded, std::uint64_t gpus, Instant now);

  /// kPrefetch was sent. One a GPU at a time.
  void prefetching(const Session& session, int gpu, wire::Epoch last_lease, Instant now);
  void prefetched(const Session& session, const wire::Prefetched& prefetched, Instant now);

  /// Its lease ended before it had loaded.
  void revoked(const Session& session, Instant now);
  /// Its connection is lost: whatever it does, nobody will be told when it is over.
  void lost(const Session& session, Instant now);
  void died(const Session& session, Instant now);

 private:
  struct Asked {
    TracePaging record;
    std::uint64_t for_switch = 0;
  };
  void end_all(const Session& session, const char* outcome, Instant end, Instant now);
  void end_load(const Session& session, const char* outcome, Instant end);

  TraceWriter& trace_;
  SwitchLog& switches_;
  std::map<SessionKey, std::deque<Asked>> evictions_;  ///< asked and not answered
  std::map<SessionKey, TracePaging> loads_;
  std::map<SessionKey, std::map<int, TracePaging>> prefetches_;  ///< by GPU
};

}  // namespace plexrl::nodemgr
