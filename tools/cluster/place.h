#pragma once

#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "tools/cluster/manager_channel.h"

namespace plexrl::cluster_tool {

struct PlaceOptions {
  ManagerAddress manager;
  cluster::v1::JobRequest job;             ///< without its user, who is who runs this
  std::vector<std::string> admin_sockets;  ///< where this machine's node manager may answer
  std::string id;  ///< of the place that the job has already, and is taken over; or empty
};

/// Gets a job its place, for plexrl-run, and keeps it until the job has begun.
///
/// On stdout a line for each news: `queued WHY`; `placed here|elsewhere NODE UUID,UUID… ID`; and as
/// the last one `refused WHY` or `failed WHY`. On stdin `job ID`, once the node manager has
/// admitted it; then it ends when the cluster manager knows, as it does when somebody else has told
/// that. Or `slurm ID`: Slurm has the job in its queue; then the place is kept until it runs or
/// Slurm has it no more. The end of stdin before either gives the place back, so plexrl-run needs
/// no signal handlers to do so; those of the terminal are ignored here. Returns the exit status.
///
/// Inside of a Slurm job (SLURM_JOB_ID) the cluster manager is told which one.
int get_place(PlaceOptions options);

}  // namespace plexrl::cluster_tool
