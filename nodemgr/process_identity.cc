#include "nodemgr/process_identity.h"

#include <poll.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {

namespace {

/// The fields of /proc/PID/stat from the third on; empty when there is no such process.
std::string stat_fields(pid_t pid, const std::string& proc) {
  std::ifstream file(cat(proc, "/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return "";
  // The second field is the command in parentheses and may hold anything, also ')'.
  std::size_t after_command = line.rfind(')');
  return after_command == std::string::npos ? "" : line.substr(after_command + 1);
}

}  // namespace

std::optional<std::uint64_t> start_time_of(pid_t pid, const std::string& proc) {
  std::istringstream fields(stat_fields(pid, proc));
  std::string field;
  for (int number = 3; number <= 22; ++number) {
    if (!(fields >> field)) return std::nullopt;
  }
  std::uint64_t ticks = 0;
  std::istringstream(field) >> ticks;
  return ticks;
}

bool is_stopped(pid_t pid, const std::string& proc) {
  std::string state;
  std::istringstream(stat_fields(pid, proc)) >> state;
  return state == "T" || state == "t";
}

ScopedFd open_process(const ProcessIdentity& identity) {
  ScopedFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, identity.pid, 0)));
  if (!pidfd.is_open()) return pidfd;
  // The pid can't be used again while the pidfd is open, so this check holds.
  std::optional<std::uint64_t> ticks = start_time_of(identity.pid);
  if (!ticks || *ticks != identity.start_time_ticks || has_ended(pidfd)) pidfd.reset();
  return pidfd;
}

bool has_ended(const ScopedFd& pidfd) {
  if (!pidfd.is_open()) return true;
  pollfd poll{pidfd.get(), POLLIN, 0};
  return ::poll(&poll, 1, 0) > 0;
}

bool may_have_thread(pid_t pid, std::string_view name, const std::string& proc) {
  std::error_code error;
  std::filesystem::directory_iterator tasks(cat(proc, "/", pid, "/task"), error);
  for (; !error && tasks != std::filesystem::directory_iterator(); tasks.increment(error)) {
    std::ifstream file(tasks->path() / "comm");
    std::string comm;
    if (!std::getline(file, comm)) {
      // A thread that has ended meanwhile has no such file any more.
      if (std::filesystem::exists(tasks->path(), error)) return true;
      error.clear();
    }
    if (comm == name) return true;
  }
  return static_cast<bool>(error);
}

std::uint64_t user_namespace_of(pid_t pid, const std::string& proc) {
  struct stat info {};
  return ::stat(cat(proc, "/", pid, "/ns/user").c_str(), &info) == 0 ? info.st_ino : 0;
}

std::string user_name(uid_t uid) {
  char buffer[1024];
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) != 0 || found == nullptr) {
    return cat(uid);
  }
  return found->pw_name;
}

std::string owner_of(pid_t pid, const std::string& proc) {
  struct stat info {};
  return ::stat(cat(proc, "/", pid).c_str(), &info) == 0 ? user_name(info.st_uid) : "";
}

std::string command_of(pid_t pid, const std::string& proc) {
  std::ifstream file(cat(proc, "/", pid, "/comm"));
  std::string name;
  std::getline(file, name);
  for (char& c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name;
}

}  // namespace plexrl::nodemgr
