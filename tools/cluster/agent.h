#pragma once

#include <sys/types.h>

#include <string>

#include "tools/cluster/manager_channel.h"

namespace plexrl::cluster_tool {

struct AgentOptions {
  ManagerAddress manager;
  std::string node;          ///< as in the certificate
  std::string admin_socket;  ///< of the node manager
  pid_t node_manager = 0;    ///< our parent; we end with it
};

/// Tells the cluster manager of this node until the node manager ends: asks the one, reports to the
/// other, as often as that says; ever less often while it can't be reached. One line in the log
/// when that changes. Returns the exit status; what can't work as told is written to stdout.
int run_agent(const AgentOptions& options);

/// Tells it once that the node manager has ended and no job is left. Returns the exit status.
int say_left(const AgentOptions& options);

}  // namespace plexrl::cluster_tool
