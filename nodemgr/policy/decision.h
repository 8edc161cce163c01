#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nodemgr/policy/types.h"

namespace plexrl::nodemgr::policy {

/// What the caller must do, in the order given. Every decision says why and on which figures.
struct Decision {
  enum class Kind {
    kWithdraw,  ///< ask all processes of `gang` to drain: attempt number `attempt`
    kReopen,    ///< the attempt is over, the lease goes on
    kRevoke,    ///< the lease has ended
    kEvict,     ///< `bytes` of `gang` on `gpu` must leave HBM, for `other`
    kPrefetch,  ///< `bytes` of `gang` on `gpu` may come back to HBM, no faster than `bytes_per_s`
    kGrant,     ///< the lease over `gpus` begins; with `run_now` nothing has to be loaded
    kRun,       ///< all have loaded
    kHang,      ///< the holder can't be cut and has finished nothing for Config::hang_after
    kWait,      ///< nothing to do: says why a waiting gang does not run, whenever that changes
  };
  Kind kind = Kind::kWait;
  GangId gang = kNoGang;
  GangId other = kNoGang;  ///< for whom, or who stands in the way
  GpuMask gpus = 0;
  int gpu = -1;            ///< kEvict and kPrefetch only
  std::int64_t bytes = 0;  ///< kEvict and kPrefetch only
  double bytes_per_s = 0;  ///< kPrefetch only
  std::uint64_t attempt = 0;
  bool run_now = false;
  std::string reason;
  std::vector<Figure> figures;
};
const char* decision_name(Decision::Kind kind);

}  // namespace plexrl::nodemgr::policy
