#include "nodemgr/policy/types.h"

namespace plexrl::nodemgr::policy {

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kIdle:
      return "idle";
    case Phase::kWaiting:
      return "waiting";
    case Phase::kLoading:
      return "loading";
    case Phase::kRunning:
      return "running";
    case Phase::kDraining:
      return "draining";
  }
  return "idle";
}

}  // namespace plexrl::nodemgr::policy
