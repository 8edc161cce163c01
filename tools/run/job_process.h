#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/run/group_witness.h"
#include "tools/run/job_env.h"

namespace plexrl::run {

/// Blocks every signal that can be blocked, and remembers what was set before, so that the job gets
/// the mask and the SIGCHLD disposition that plexrl-run was started with.
class BlockedSignals {
 public:
  BlockedSignals();
  /// Only for a forked child that is about to exec.
  void restore_in_child() const;
  const sigset_t& set() const { return blocked_; }

 private:
  sigset_t blocked_, before_;
  struct sigaction child_before_;
};

/// The job's first process, in plexrl-run's process group and on its terminal.
///
/// Signals reach it once: those of the terminal and of the process group by themselves, those sent
/// to plexrl-run alone because they are forwarded. Job control works as if the job had been started
/// directly: when it is stopped from the terminal plexrl-run stops too, so that the shell sees it,
/// and both go on together.
///
/// Threads: one, the main one; others must have all signals blocked.
class JobProcess {
 public:
  /// Forks and executes. Errors: NotFound or PermissionDenied, with the reason, when the command
  /// can't be executed; nothing runs then.
  [[nodiscard]] static absl::StatusOr<JobProcess> start(const std::vector<std::string>& command,
                                                        EnvBlock& env,
                                                        const BlockedSignals& signals);

  /// Waits for the end and returns what plexrl-run returns: the exit status, or 128+n. `on_signal`
  /// is called with every signal that plexrl-run takes, before it is forwarded.
  int wait(GroupWitness& witness, const BlockedSignals& signals,
           const std::function<void(int)>& on_signal);

 private:
  explicit JobProcess(pid_t pid) : pid_(pid) {}
  void take_signal(const siginfo_t& info, bool group_got_it);
  void look_after_child();
  void stop_with_child();

  pid_t pid_;
  int status_ = -1;              ///< what to return, once it has ended
  bool child_stopped_ = false;   ///< and not continued since
  bool stop_requested_ = false;  ///< we got a stop signal that the child may follow
};

}  // namespace plexrl::run
