#pragma once

#include <string>
#include <vector>

#include "tools/sim/rows.h"
#include "tools/sim/run_file.h"

namespace plexrl::sim {

/// The report as one page without anything from elsewhere: rows against goal and bound, and for
/// each run a time line of slots, the duty of each, and the distribution of slowdowns.
std::string to_html(const Report& report, const std::vector<SchedulerRun>& runs);

}  // namespace plexrl::sim
