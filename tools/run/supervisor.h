#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "tools/run/manager_link.h"
#include "tools/run/manager_start.h"

namespace plexrl::run {

/// Keeps a job connected to a node manager while the job runs: when the manager has gone it
/// connects to the next one, starts that one if it is the user's own, and says which job this is
/// (kJobResume). The job goes on meanwhile (invariant 9).
///
/// Runs until the process ends; there is no way to stop it, and none is needed: everything that it
/// leaves behind (a lock, a half-started manager) is built to be left behind.
class Supervisor {
 public:
  struct Job {
    std::string socket;
    std::optional<ManagerStart> start;  ///< of the user's own manager; nothing for the system's
    wire::JobResume resume;
  };

  /// `say` gets a line for the user, from the supervisor's thread.
  /// Without a link it connects first.
  Supervisor(std::optional<ManagerLink> link, Job job, std::function<void(const std::string&)> say);

  /// Starts the thread. All signals must be blocked in the caller.
  void run_in_background();

  /// The job got SIGTERM (invariant 11): the manager is told, and the next one too. The main
  /// thread.
  void say_exiting();

 private:
  void run();
  std::optional<ManagerLink> connect();
  enum class Resumed { kYes, kLost, kRefused };
  Resumed resume();

  void set_link(std::optional<ManagerLink> link);

  std::mutex mutex_;                 ///< of the two that follow, against say_exiting
  std::optional<ManagerLink> link_;  ///< assigned by the supervisor's thread only
  bool exiting_ = false;
  Job job_;
  std::function<void(const std::string&)> say_;
  bool said_unreachable_ = false;
};

}  // namespace plexrl::run
