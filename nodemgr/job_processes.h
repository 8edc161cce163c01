#pragma once

#include <sys/types.h>

#include <string>

#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// A living process of a job, joined or not: one that was started with the job's id in its
/// environment (docs/contract.md, "environment, set for the job"), as /proc/PID/environ shows it.
struct JobSearch {
  enum class Answer {
    kNone,     ///< there is none
    kHidden,   ///< none that may be looked at, and others are there that may not
    kUnclear,  ///< a process of the user is in the middle of an exec: look again
    kFound,
  };
  Answer answer = Answer::kNone;
  pid_t pid = 0;
  ScopedFd pidfd;  ///< of kFound: readable when that process ends; others may live on then
};

/// Looks through the processes of `uid`. Costs some microseconds for each of them, so it is asked
/// only when a job has nobody left who is known.
///
/// No process is missed because it is started, or calls exec, meanwhile. Hidden are another user's
/// from a caller without the capabilities for it. Not seen are processes that have overwritten
/// their own environment block, as setproctitle(3) does, and those of the caller's own user that
/// nobody may look at (PR_SET_DUMPABLE).
JobSearch find_process_of(const std::string& job_id, uid_t uid);

/// To be called in a helper that was forked from a process of a job and is not part of that job:
/// from now on it is not found.
void leave_job_environment();

}  // namespace plexrl::nodemgr
