#include "nodemgr/daemon_start.h"

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>

#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {

sigset_t take_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void say_ready(const std::string& ready_fd, std::string_view line) {
  int fd = -1;
  auto [end, error] = std::from_chars(ready_fd.data(), ready_fd.data() + ready_fd.size(), fd);
  if (ready_fd.empty() || error != std::errc{} || fd < 0) return;
  const std::string text = cat(line, "\n");
  if (::write(fd, text.data(), text.size()) < 0) {
    log_line(LogLevel::kWarning, "main", "nobody takes the ready signal, going on");
  }
  ::close(fd);
}

}  // namespace plexrl::nodemgr
