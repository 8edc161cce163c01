#include "tools/run/slurm_step.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tools/run/scoped_fd.h"

namespace plexrl::run {
namespace {

constexpr int kAnswerFd = 3;
constexpr int kAnsweredFd = 4;
constexpr int kAliveFd = 5;

std::string name_of(const std::string& entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

SlurmStep::SlurmStep() {
  for (const int fd : {kAnswerFd, kAnsweredFd, kAliveFd}) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

std::string SlurmStep::answer(const EnvBlock& before, const EnvBlock& after) {
  std::string text;
  const auto add = [&](const std::string& entry) { text.append(entry).push_back('\0'); };
  for (const std::string& entry : after.entries()) {
    const char* const was = before.get(name_of(entry));
    if (was == nullptr || absl::StrCat(name_of(entry), "=", was) != entry)
      add(absl::StrCat("=", entry));
  }
  for (const std::string& entry : before.entries()) {
    if (after.get(name_of(entry)) == nullptr) add(absl::StrCat("-", name_of(entry)));
  }
  add("run");
  return text;
}

void SlurmStep::let_run(const std::string& answer) {
  for (std::size_t at = 0; at < answer.size();) {
    const ssize_t written = write(kAnswerFd, answer.data() + at, answer.size() - at);
    if (written < 0 && errno != EINTR) break;  // it lacks its "run" then
    at += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  close(kAnswerFd);
  close(kAnsweredFd);
  const ScopedFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing.get(), fd);
}

void SlurmStep::await_end(const std::function<void()>& on_term) {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  const ScopedFd signals(signalfd(-1, &term, SFD_CLOEXEC));
  for (;;) {
    pollfd ready[] = {{kAliveFd, POLLIN, 0}, {signals.get(), POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) continue;
    if (ready[0].revents != 0) return;
    signalfd_siginfo info;
    if (ready[1].revents != 0 && read(signals.get(), &info, sizeof info) > 0) on_term();
  }
}

}  // namespace plexrl::run
