// Runs a program as a debugger does: `traced FILE PROGRAM [ARGUMENT…]`. All of its threads are
// stopped as long as FILE exists. Ends as the program does.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>

namespace {

constexpr useconds_t kLookUs = 5'000;
constexpr unsigned long kOptions = PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;

enum class Thread { kRuns, kInterrupted, kStopped };

pid_t start(char** command) {
  int gate[2];
  if (pipe(gate) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    close(gate[1]);
    char nothing;
    if (read(gate[0], &nothing, 1) != 0) _exit(127);
    close(gate[0]);
    execvp(command[0], command);
    _exit(127);
  }
  close(gate[0]);
  const bool traced = ptrace(PTRACE_SEIZE, child, nullptr, kOptions) == 0;
  if (!traced) std::perror("traced: ptrace");
  close(gate[1]);
  return traced ? child : -1;
}

/// A thread has stopped. It goes on, with the signal that it stopped for, unless we stopped it.
Thread stopped(pid_t thread, int status, bool shall_stop) {
  const int event = status >> 16;
  if (event == PTRACE_EVENT_STOP && shall_stop) return Thread::kStopped;
  const int signal = event == 0 ? WSTOPSIG(status) : 0;
  ptrace(PTRACE_CONT, thread, nullptr, static_cast<std::uintptr_t>(signal));
  return Thread::kRuns;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const pid_t program = start(argv + 2);
  if (program < 0) return 1;
  std::map<pid_t, Thread> threads = {{program, Thread::kRuns}};
  for (;;) {
    const bool shall_stop = access(argv[1], F_OK) == 0;
    int status = 0;
    pid_t thread = 0;
    while ((thread = waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
      if (WIFSTOPPED(status)) {
        threads[thread] = stopped(thread, status, shall_stop);
      } else if (thread != program) {
        threads.erase(thread);
      } else if (WIFEXITED(status)) {
        return WEXITSTATUS(status);
      } else {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
        return 128 + WTERMSIG(status);
      }
    }
    for (auto& [id, state] : threads) {
      if (shall_stop && state == Thread::kRuns && ptrace(PTRACE_INTERRUPT, id, nullptr, 0) == 0) {
        state = Thread::kInterrupted;
      } else if (!shall_stop && state == Thread::kStopped &&
                 ptrace(PTRACE_CONT, id, nullptr, 0) == 0) {
        state = Thread::kRuns;
      }
    }
    usleep(kLookUs);
  }
}
