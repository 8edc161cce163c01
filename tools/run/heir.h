#pragma once

#include <functional>
#include <string>

#include "tools/run/manager_start.h"
#include "tools/run/supervisor.h"

namespace plexrl::run {

/// What plexrl-run's witness does when plexrl-run was killed: the job goes on, and may wait at the
/// gate for a manager that nobody would start again (invariant 9). Starts it again whenever it has
/// been killed; it finds the job in its journal and by its processes.
///
/// Says nothing and is no part of the job: a manager that ends because its last job has gone takes
/// its socket away, and then this returns. So it does when no manager can be started for some
/// minutes.
void keep_manager_alive(ManagerStart& start);

/// The same when plexrl-run has ended and has left processes of the job behind: until the last of
/// them has gone. Returns at once when there is none. `start` must live until the process ends.
void keep_manager_alive_for(const std::string& job_id, ManagerStart& start);

/// Where the manager is another user's: it may not be able to see whether the job goes on, so this
/// process stands in for plexrl-run until the last process of the job has gone. Calls `let_go` when
/// it does, or need not.
void stand_in_for_runner(const std::string& job_id, Supervisor::Job job,
                         const std::function<void()>& let_go);

}  // namespace plexrl::run
