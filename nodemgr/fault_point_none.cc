#include "nodemgr/fault_point.h"

namespace plexrl::nodemgr {

void fault_point(const char*) {}

}  // namespace plexrl::nodemgr
