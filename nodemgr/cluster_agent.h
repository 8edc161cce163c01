#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "nodemgr/event_loop.h"
#include "nodemgr/helper_process.h"
#include "nodemgr/settings/table.h"

namespace plexrl::nodemgr {

/// Keeps the program running that tells a cluster manager of this node (plexrl-cluster-client). It
/// asks us on the administration socket as anybody may, so nothing here waits for the network, and
/// its death, or the cluster manager's, changes nothing but that. One that ends is started again,
/// ever later; one that can't work as it was told to says so, and is tried again each minute.
///
/// The loop's thread.
class ClusterAgent {
 public:
  /// `values`: the [cluster] settings; nothing is started when no cluster manager is named.
  ClusterAgent(EventLoop& loop, const settings::Values& values, const std::string& node,
               const std::string& admin_socket);

  /// The node manager ends and no job is left: the cluster manager is told by a process that may
  /// outlive us, and nothing of this node is told any more.
  void leave();

 private:
  void start();
  void ended(const HelperProcess::End& end);

  EventLoop& loop_;
  std::vector<std::string> arguments_, leaving_;
  std::string last_words_;
  std::chrono::nanoseconds started_{0}, wait_{0};
  std::optional<HelperProcess> process_;
};

}  // namespace plexrl::nodemgr
