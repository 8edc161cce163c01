#include "nodemgr/policy/decision.h"

namespace plexrl::nodemgr::policy {

const char* decision_name(Decision::Kind kind) {
  switch (kind) {
    case Decision::Kind::kWithdraw:
      return "withdraw";
    case Decision::Kind::kReopen:
      return "reopen";
    case Decision::Kind::kRevoke:
      return "revoke";
    case Decision::Kind::kPrefetch:
      return "prefetch";
    case Decision::Kind::kEvict:
      return "evict";
    case Decision::Kind::kGrant:
      return "grant";
    case Decision::Kind::kRun:
      return "run";
    case Decision::Kind::kHang:
      return "hang";
    case Decision::Kind::kWait:
      return "wait";
  }
  return "wait";
}

}  // namespace plexrl::nodemgr::policy
