#pragma once

#include "tools/run/manager_start.h"

namespace plexrl::run {

/// What plexrl-run's witness does when plexrl-run was killed: the job goes on, and may wait at the
/// gate for a manager that nobody would start again (invariant 9). Starts it again whenever it has
/// been killed; it finds the job in its journal and by its processes.
///
/// Says nothing and is no part of the job: a manager that ends because its last job has gone takes
/// its socket away, and then this returns. So it does when no manager can be started for some
/// minutes.
void keep_manager_alive(ManagerStart& start);

}  // namespace plexrl::run
