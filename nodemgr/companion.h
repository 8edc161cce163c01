#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "nodemgr/event_loop.h"
#include "nodemgr/helper_process.h"
#include "nodemgr/settings/table.h"

namespace plexrl::nodemgr {

/// Keeps a program running beside the manager, which asks it on the administration socket as
/// anybody may: so nothing here waits for a network, and the program's death changes nothing but
/// what it does. One that ends is started again, ever later, at last each minute; what it said is
/// logged once.
///
/// The loop's thread.
class Companion {
 public:
  /// `arguments`: the program first; empty: there is none. `timers`: two of the loop's that nobody
  /// else uses, this and the next. `missing`: what is not done while it is away, for the log.
  Companion(EventLoop& loop, int timers, std::vector<std::string> arguments, std::string missing);

  /// Kills it; none is started again.
  void stop();

 private:
  void start();
  void ended(const HelperProcess::End& end);

  EventLoop& loop_;
  const int start_timer_;
  const std::vector<std::string> arguments_;
  const std::string missing_;
  std::string last_words_;
  std::chrono::nanoseconds started_{0}, wait_;
  std::optional<HelperProcess> process_;
};

/// The command that tells a cluster manager of this node (plexrl-cluster-client agent); empty when
/// none is named.
std::vector<std::string> cluster_agent(const settings::Values& values, const std::string& node,
                                       const std::string& admin_socket);

/// The command that tells it that the node leaves, and that no job is left; empty when none is
/// named.
std::vector<std::string> cluster_farewell(const settings::Values& values, const std::string& node);

/// Starts a command that may outlive us, without a terminal, output or a word when it fails;
/// nothing for an empty one.
void leave_behind(std::vector<std::string> arguments);

/// The command that serves metrics (plexrl-exporter); empty when nobody is to: `metrics.listen` is
/// off, or is not set and the manager ends with its last job.
std::vector<std::string> metrics_exporter(const settings::Values& values,
                                          const std::string& admin_socket);

}  // namespace plexrl::nodemgr
