#include "nodemgr/job_processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr char kVariable[] = "PLEXRL_JOB_ID=";
/// While processes are being started, a look that finds nobody is repeated: the first one may have
/// passed a child's number before its parent, at a higher one, started it and ended.
constexpr int kMaxLooks = 4;

/// The whole file; nothing when it can't be read.
std::optional<std::string> contents(const std::string& path) {
  ScopedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return std::nullopt;
  std::string text;
  char part[16 << 10];
  ssize_t got;
  while ((got = ::read(file.get(), part, sizeof part)) > 0) {
    text.append(part, static_cast<std::size_t>(got));
  }
  if (got < 0) return std::nullopt;
  return text;
}

/// The new program's memory is there and its environment is not yet. False also where the kernel
/// does not tell (fields 23, vsize, and 51, env_end, of /proc/PID/stat; proc(5)).
bool is_in_exec(const std::string& process) {
  const std::optional<std::string> line = contents(cat(process, "/stat"));
  if (!line || line->rfind(')') == std::string::npos) return false;
  std::istringstream fields(line->substr(line->rfind(')') + 1));
  std::string field, memory, environment_end;
  for (int number = 3; fields >> field; ++number) {
    if (number == 23) memory = field;
    if (number == 51) environment_end = field;
  }
  return memory != "0" && environment_end == "0";
}

bool kernel_tells_of_exec() {
  static const bool tells = !is_in_exec("/proc/self");
  return tells;
}

JobSearch::Answer look_at(const std::string& process, const std::string& entry) {
  using Answer = JobSearch::Answer;
  errno = 0;
  const std::optional<std::string> environment = contents(cat(process, "/environ"));
  if (!environment) return errno == EACCES || errno == EPERM ? Answer::kHidden : Answer::kNone;
  if (environment->empty()) {
    return kernel_tells_of_exec() && is_in_exec(process) ? Answer::kUnclear : Answer::kNone;
  }
  const std::string bounded = cat('\0', *environment, '\0');
  return bounded.find(cat('\0', entry, '\0')) != std::string::npos ? Answer::kFound : Answer::kNone;
}

/// The number of the process that was started last.
std::string last_started() {
  std::ifstream file("/proc/loadavg");
  std::string field, last;
  while (file >> field) last = field;
  return last;
}

JobSearch look_through(const std::string& entry, uid_t uid) {
  JobSearch search;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  if (folder == nullptr) return search;
  while (const dirent* found = ::readdir(folder.get())) {
    const pid_t pid = static_cast<pid_t>(std::strtol(found->d_name, nullptr, 10));
    struct stat info {};
    if (pid <= 0 || pid == ::getpid()) continue;
    if (::fstatat(::dirfd(folder.get()), found->d_name, &info, 0) != 0 || info.st_uid != uid) {
      continue;
    }
    const std::string process = cat("/proc/", pid);
    JobSearch::Answer answer = look_at(process, entry);
    // Our own user's are hidden when they hide from everybody, as ssh-agent(1) does.
    if (answer == JobSearch::Answer::kHidden && uid == ::geteuid()) continue;
    search.answer = std::max(search.answer, answer);
    if (answer != JobSearch::Answer::kFound) continue;
    search.answer = JobSearch::Answer::kUnclear;
    search.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    // The number can't go to another process while the descriptor is open, so now it is sure.
    if (!search.pidfd.is_open() || look_at(process, entry) != JobSearch::Answer::kFound) {
      search.pidfd.reset();
      continue;
    }
    search.answer = JobSearch::Answer::kFound;
    search.pid = pid;
    return search;
  }
  return search;
}

}  // namespace

JobSearch find_process_of(const std::string& job_id, uid_t uid) {
  const std::string entry = cat(kVariable, job_id);
  JobSearch search;
  for (int look = 0; look < kMaxLooks; ++look) {
    const std::string before = last_started();
    search = look_through(entry, uid);
    if (search.answer != JobSearch::Answer::kNone || last_started() == before) break;
  }
  return search;
}

void leave_job_environment() {
  // In place: what /proc shows is the block that the process was started with.
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, kVariable, sizeof kVariable - 1) != 0) continue;
    std::memset(*entry + sizeof kVariable - 1, '-', std::strlen(*entry) - (sizeof kVariable - 1));
  }
}

}  // namespace plexrl::nodemgr
