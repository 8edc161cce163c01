#include "nodemgr/helper_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "nodemgr/clock.h"
#include "nodemgr/settings/cat.h"

extern char** environ;

namespace plexrl::nodemgr {
namespace {

constexpr std::size_t kMostText = 400;
constexpr int kDidNothing = 3;  ///< exit status

/// True, and how it ended.
bool wait_for(pid_t pid, int* status) {
  pid_t ended = -1;
  do {
    ended = ::waitpid(pid, status, 0);
  } while (ended < 0 && errno == EINTR);
  return ended == pid;
}

pid_t spawn(const std::vector<std::string>& arguments, int output) {
  std::vector<std::string> copy = arguments;
  std::vector<char*> argv;
  argv.reserve(copy.size() + 1);
  for (std::string& argument : copy) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  errno = error;
  return error == 0 ? pid : 0;
}

}  // namespace

HelperProcess::~HelperProcess() {
  if (pid_ == 0) return;
  loop_.forget(pidfd_.get());
  ::kill(pid_, SIGKILL);
  wait_for(pid_, nullptr);
}

bool HelperProcess::start(const std::vector<std::string>& arguments,
                          std::chrono::nanoseconds patience, std::function<void(const End&)> done) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  output_ = ScopedFd(ends[0]);
  const ScopedFd write_end(ends[1]);
  const pid_t pid = spawn(arguments, write_end.get());
  if (pid == 0) return false;
  // Our child, not waited for: the number is its own.
  pidfd_ = ScopedFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd_.is_open()) {
    const int error = errno;
    ::kill(pid, SIGKILL);
    wait_for(pid, nullptr);
    errno = error;
    return false;
  }
  pid_ = pid;
  was_late_ = false;
  done_ = std::move(done);
  loop_.watch(pidfd_.get(), EPOLLIN, [this](std::uint32_t) { ended(); });
  loop_.set_timer(timer_, boot_now() + patience, [this] {
    was_late_ = true;
    ::kill(pid_, SIGKILL);
  });
  return true;
}

HelperProcess::End HelperProcess::collect() {
  End end;
  int status = 0;
  const bool is_known = wait_for(pid_, &status);
  std::array<char, kMostText> said{};
  const ssize_t size = ::read(output_.get(), said.data(), said.size());
  if (size > 0) end.text.assign(said.data(), static_cast<std::size_t>(size));
  end.text = end.text.substr(0, end.text.find('\n'));
  if (!is_known) {  // somebody ignores SIGCHLD in this process: it may have come anywhere
    end.text = "nobody knows how the helper ended";
    return end;
  }
  end.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  end.ran = !WIFEXITED(status) || WEXITSTATUS(status) != kDidNothing;
  if (end.ok || !end.text.empty()) return end;
  end.text = was_late_             ? "the helper did not end in time and was killed"
             : WIFSIGNALED(status) ? cat("the helper was killed by signal ", WTERMSIG(status))
                                   : cat("the helper ended with ", WEXITSTATUS(status));
  return end;
}

void HelperProcess::ended() {
  const End end = collect();
  loop_.forget(pidfd_.get());
  loop_.cancel_timer(timer_);
  pidfd_.reset();
  output_.reset();
  pid_ = 0;
  std::exchange(done_, nullptr)(end);
}

std::string beside_this_program(const std::string& name) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (auto folder = program.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    const auto file = folder / "lib/plexrl" / name;
    if (std::filesystem::exists(file, error)) return file;
  }
  return name;
}

}  // namespace plexrl::nodemgr
