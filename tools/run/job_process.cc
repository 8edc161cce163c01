#include "tools/run/job_process.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tools/run/scoped_fd.h"

namespace plexrl::run {
namespace {

bool is_stop_request(int signal) {
  return signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

// The child's half: the result is only ever an errno, through `report`.
[[noreturn]] void execute(char* const* argv, char* const* envp, const BlockedSignals& signals,
                          int report) {
  signals.restore_in_child();
  execvpe(argv[0], argv, envp);
  const int error = errno;
  if (write(report, &error, sizeof error) != sizeof error) _exit(126);
  _exit(127);
}

}  // namespace

BlockedSignals::BlockedSignals() {
  sigfillset(&blocked_);
  // Faults of our own must not be put off.
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&blocked_, fault);
  sigprocmask(SIG_BLOCK, &blocked_, &before_);
  // If SIGCHLD was ignored the kernel would reap the job and keep its status from us.
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &by_default, &child_before_);
}

void BlockedSignals::restore_in_child() const {
  sigaction(SIGCHLD, &child_before_, nullptr);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

absl::StatusOr<JobProcess> JobProcess::start(const std::vector<std::string>& command, EnvBlock& env,
                                             const BlockedSignals& signals) {
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::vector<char*> envp = env.pointers();

  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return absl::InternalError("no more files can be opened");
  ScopedFd reader(pipe_fds[0]), writer(pipe_fds[1]);
  const pid_t pid = fork();
  if (pid < 0) return absl::InternalError(absl::StrCat("fork: ", strerror(errno)));
  if (pid == 0) execute(argv.data(), envp.data(), signals, writer.get());
  writer.reset();

  int error = 0;  // stays when the pipe is closed by a successful exec
  if (read(reader.get(), &error, sizeof error) == sizeof error) {
    waitpid(pid, nullptr, 0);
    const std::string text = absl::StrCat(command[0], ": ", strerror(error));
    if (error == ENOENT) return absl::NotFoundError(text);
    return absl::PermissionDeniedError(text);
  }
  return JobProcess(pid);
}

int JobProcess::wait(GroupWitness& witness, const BlockedSignals& signals,
                     const std::function<void(int)>& on_signal) {
  look_after_child();
  while (status_ < 0) {
    siginfo_t info{};
    if (sigwaitinfo(&signals.set(), &info) < 0) continue;
    if (info.si_signo == SIGCHLD) {
      look_after_child();
    } else {
      on_signal(info.si_signo);
      take_signal(info, witness.group_got(info.si_signo));
    }
    if (stop_requested_ && child_stopped_ && status_ < 0) stop_with_child();
  }
  return status_;
}

void JobProcess::take_signal(const siginfo_t& info, bool group_got_it) {
  if (is_stop_request(info.si_signo)) stop_requested_ = true;
  if (info.si_signo == SIGCONT) stop_requested_ = false;
  const bool child_in_group = getpgid(pid_) == getpgrp();
  // The kernel itself (the terminal) signals groups only; SIGPIPE and the like are our own.
  const bool sent_to_group = group_got_it || info.si_code == SI_KERNEL;
  if (sent_to_group && child_in_group) return;
  const bool sent_by_us_or_job =
      info.si_code == SI_USER && (info.si_pid == getpid() || info.si_pid == pid_);
  if (sent_by_us_or_job || info.si_signo == SIGPIPE) return;
  if (info.si_code == SI_QUEUE) {
    sigqueue(pid_, info.si_signo, info.si_value);
  } else {
    kill(pid_, info.si_signo);  // still our child and not reaped, so the number is its own
  }
}

void JobProcess::look_after_child() {
  siginfo_t info{};
  while (status_ < 0 &&
         waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG) ==
             0 &&
         info.si_pid == pid_) {
    if (info.si_code == CLD_EXITED) status_ = info.si_status;
    if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) status_ = 128 + info.si_status;
    child_stopped_ = info.si_code == CLD_STOPPED;
    info.si_pid = 0;
  }
}

// Only when we were asked to stop too: a job that is stopped and continued by its own process id
// (a debugger, a script) does so without us, because nobody would continue us.
void JobProcess::stop_with_child() {
  stop_requested_ = false;
  child_stopped_ = false;
  kill(getpid(), SIGSTOP);
  // Continued. The SIGCONT is pending and is taken like any other signal: forwarded, unless the
  // group got it.
}

}  // namespace plexrl::run
