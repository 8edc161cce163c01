#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/sim/rows.h"
#include "tools/sim/workload.h"

namespace plexrl::sim {

struct SchedulerRun {
  std::string scheduler;
  Result result;
};

/// The workload under each scheduler that it names, with the same draws.
std::vector<SchedulerRun> run_workload(const Workload& workload,
                                       const std::function<void(const std::string&)>& progress);

/// Rows for every scheduler, with the bound by volume.
Report report_of(const Workload& workload, const std::vector<SchedulerRun>& runs);

/// Per scheduler: figures by team, every job, every slot.
nlohmann::json details_of(const std::vector<SchedulerRun>& runs);

}  // namespace plexrl::sim
