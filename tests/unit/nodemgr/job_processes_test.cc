#include "nodemgr/job_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace plexrl::nodemgr {
namespace {

using Answer = JobSearch::Answer;

/// Others of the user may be in the middle of an exec just now.
JobSearch search_for(const std::string& job_id) {
  for (;;) {
    JobSearch search = find_process_of(job_id, geteuid());
    if (search.answer != Answer::kUnclear) return search;
  }
}

bool is_hidden(pid_t pid) {
  const int fd = open(("/proc/" + std::to_string(pid) + "/environ").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd < 0 && errno == EACCES;
}

TEST(JobProcesses, OneIsFoundByItsEnvironmentUntilItEnds) {
  const std::string id = "test-" + std::to_string(getpid());
  EXPECT_EQ(search_for(id).answer, Answer::kNone);
  const std::string variable = "PLEXRL_JOB_ID=" + id;
  const pid_t child = fork();
  if (child == 0) {
    const char* const environment[] = {variable.c_str(), nullptr};
    execle("/bin/sleep", "sleep", "1000000", nullptr, environment);
    _exit(1);
  }
  JobSearch search = search_for(id);
  while (search.answer == Answer::kNone) search = search_for(id);  // it has yet to call exec
  EXPECT_EQ(search.answer, Answer::kFound);
  EXPECT_EQ(search.pid, child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(search_for(id).answer, Answer::kNone);
}

TEST(JobProcesses, ThoseOfTheSameUserThatNobodyMayLookAtAreNotTheJobs) {
  const pid_t searcher = fork();
  if (searcher == 0) {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(2);
    const pid_t hidden = fork();
    if (hidden == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prctl(PR_SET_DUMPABLE, 0);
      for (;;) pause();
    }
    while (!is_hidden(hidden)) usleep(1000);
    const Answer answer = search_for("no-such-job").answer;
    kill(hidden, SIGKILL);
    _exit(answer == Answer::kNone ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(searcher, &status, 0), searcher);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace plexrl::nodemgr
