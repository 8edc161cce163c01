#pragma once

#include <functional>
#include <string>
#include <vector>

namespace plexrl::run {

/// Says why a job that srun has submitted does not start yet, and when it could, each time that
/// changes. A thread, until the job has started or this process ends. All signals must be blocked
/// in the caller. `environment` ("NAME=VALUE", null-terminated) must live as long.
void watch_slurm_job(const std::string& comment, const std::string& node,
                     std::vector<char*> environment, std::function<void(const std::string&)> say);

}  // namespace plexrl::run
