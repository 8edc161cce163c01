#pragma once

#include <cstdint>
#include <functional>

#include "tools/run/scoped_fd.h"

namespace plexrl::run {

/// Tells whether a signal was sent to the whole process group or to plexrl-run alone.
///
/// The problem: the job runs in plexrl-run's process group, so what is sent to the group (Ctrl-C, a
/// shell's `kill %1`) reaches the job by itself and must not be forwarded, while what is sent to
/// plexrl-run alone (`kill PID`, a batch system) must be. siginfo_t says who sent a signal, not to
/// whom.
///
/// The witness is a small child in the same group that blocks all signals and counts as "seen" what
/// arrives. It is no part of a job that plexrl-run is inside of. The kernel signals the members of
/// a group from the newest to the oldest, so when plexrl-run has a group's signal its witness has
/// it already. The witness holds no file of plexrl-run's. When plexrl-run has ended or was killed,
/// it does what an heir has to do and ends. A SIGSTOP to the group stops it too; when plexrl-run
/// has been continued alone and asks, it continues the witness.
class GroupWitness {
 public:
  /// Forks the witness. To be called with all signals blocked, and before threads are started.
  /// Without a process to be had there is no witness, and every signal counts as sent to us alone.
  /// `inherit` runs in the witness when it has been dismissed, or else (`was_killed`) plexrl-run
  /// has gone without saying so, with /dev/null as standard files. plexrl-run ends when `let_go`
  /// has been called.
  using Inherit = std::function<void(bool was_killed, const std::function<void()>& let_go)>;
  explicit GroupWitness(const Inherit& inherit);
  /// As `dismiss`, and waits for its end.
  ~GroupWitness();
  GroupWitness(const GroupWitness&) = delete;
  GroupWitness& operator=(const GroupWitness&) = delete;

  /// To be called for each signal that plexrl-run takes: true if the whole group was sent it. The
  /// answer is given once; the next signal of that number is another one.
  bool group_got(int signal);

  /// The job's first process has ended. To be called before plexrl-run ends; waits until the
  /// witness lets it go, some seconds at most.
  void dismiss();

 private:
  std::uint64_t ask();
  /// Returns when an answer can be received or the witness has ended, or after so many looks.
  void await_answer(int looks);

  /// Signals that the group was sent and plexrl-run has not taken yet: bit n-1 for signal n.
  /// Several may be pending at once, and an answer of the witness covers them all.
  std::uint64_t seen_ = 0;
  ScopedFd socket_;
  int pid_ = -1;
};

}  // namespace plexrl::run
