#include "tools/run/manager_start.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tools/cli/private_folder.h"

namespace plexrl::run {
namespace {

constexpr int kReadyFd = 3;

absl::Status failed(const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", strerror(errno)));
}

std::string last_line(const std::string& file, off_t from) {
  std::ifstream log(file);
  log.seekg(from);
  std::string line, last;
  while (std::getline(log, line)) {
    if (!line.empty()) last = line;
  }
  // Without time and level ("2026-… E nodemgr: main: no GPU").
  const std::string program = " nodemgr: ";
  const auto at = last.find(program);
  return at == std::string::npos ? last : last.substr(at + program.size());
}

/// What the child needs, prepared before the fork: after it only async-signal-safe calls are
/// allowed, because the supervisor calls this from a thread.
struct Exec {
  std::vector<char*> argv, envp;
  int null_fd, log_fd, ready_fd;
};

[[noreturn]] void become_manager(const Exec& exec) {
  setsid();
  if (fork() != 0) _exit(0);  // the manager is nobody's child, so nobody has to wait for it
  sigset_t none;
  sigemptyset(&none);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Out of the way first: their numbers may be among those that are about to be replaced.
  const int ready = fcntl(exec.ready_fd, F_DUPFD, 10);
  const int log = fcntl(exec.log_fd, F_DUPFD, 10);
  const int null = fcntl(exec.null_fd, F_DUPFD, 10);
  dup2(null, 0);
  dup2(log, 1);
  dup2(log, 2);
  dup2(ready, kReadyFd);
  close_range(kReadyFd + 1, ~0U, 0);
  if (chdir("/") != 0) _exit(127);
  execve(exec.argv[0], exec.argv.data(), exec.envp.data());
  dprintf(2, "plexrl-nodemgr can't be executed: %s\n", strerrordesc_np(errno));
  _exit(127);
}

// True once the manager has written something; false when it ended without.
bool wait_until_ready(int fd) {
  char byte;
  ssize_t got;
  do {
    got = read(fd, &byte, 1);
  } while (got < 0 && errno == EINTR);
  return got == 1;
}

absl::Status make_folders(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  if (errno != ENOENT || cli::folder_of(folder) == folder) return failed(folder);
  if (auto status = make_folders(cli::folder_of(folder)); !status.ok()) return status;
  return mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST ? absl::OkStatus() : failed(folder);
}

absl::Status start_manager(ManagerStart& start) {
  if (auto status = make_private_folder(start.state); !status.ok()) return status;
  const std::string log_path = start.state + "/nodemgr.log";
  ScopedFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) return failed(log_path);
  const off_t log_end = lseek(log.get(), 0, SEEK_END);
  ScopedFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return failed("pipe");
  ScopedFd ready(pipe_fds[0]), told(pipe_fds[1]);

  std::array<std::string, 8> words = {
      start.executable, "--socket",         start.socket, "--state-dir",
      start.state,      "--exit-when-idle", "--ready-fd", std::to_string(kReadyFd)};
  Exec exec{.argv = {},
            .envp = start.env.pointers(),
            .null_fd = null.get(),
            .log_fd = log.get(),
            .ready_fd = told.get()};
  for (std::string& word : words) exec.argv.push_back(word.data());
  exec.argv.push_back(nullptr);

  const pid_t child = fork();
  if (child < 0) return failed("fork");
  if (child == 0) become_manager(exec);
  told.reset();
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (wait_until_ready(ready.get())) return absl::OkStatus();
  const std::string why = last_line(log_path, log_end);
  return absl::UnavailableError(absl::StrCat(
      "a node manager could not be started: ", why.empty() ? "it ended without a word" : why,
      " (log: ", log_path, ")"));
}

}  // namespace

absl::Status make_private_folder(const std::string& folder) {
  if (const auto why = cli::why_not_private(folder)) return absl::PermissionDeniedError(*why);
  if (auto status = make_folders(folder); !status.ok()) return status;
  struct stat info;
  if (lstat(folder.c_str(), &info) != 0) return failed(folder);
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(folder, " is not a folder of yours"));
}

absl::StatusOr<ManagerLink> connect_or_start(ManagerStart& start) {
  if (auto link = ManagerLink::connect(start.socket); link.ok() ||
                                                      absl::IsPermissionDenied(link.status()) ||
                                                      absl::IsInvalidArgument(link.status())) {
    return link;
  }
  if (auto status = make_private_folder(cli::folder_of(start.socket)); !status.ok()) return status;
  const std::string lock_path = start.socket + ".lock";
  ScopedFd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return failed(lock_path);
  while (flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return failed(lock_path);
  }
  if (auto link = ManagerLink::connect(start.socket); link.ok()) return link;
  if (auto status = start_manager(start); !status.ok()) return status;
  return ManagerLink::connect(start.socket);
}

}  // namespace plexrl::run
