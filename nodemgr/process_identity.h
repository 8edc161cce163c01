#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// A process is named by pid and start time, because pids are used again.
struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time_ticks = 0;  ///< field 22 of /proc/PID/stat, proc(5)

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// Empty when there is no such process. `proc` is "/proc", or a test's copy of it.
std::optional<std::uint64_t> start_time_of(pid_t pid, const std::string& proc = "/proc");

/// Opens a pidfd if the process named still is that one; else a closed descriptor.
/// A pidfd becomes readable when the process ends.
ScopedFd open_process(const ProcessIdentity& identity);

/// Has the process behind the pidfd ended?
bool has_ended(const ScopedFd& pidfd);

/// Is it stopped, by SIGSTOP, Ctrl-Z or a debugger? `proc` as above.
bool is_stopped(pid_t pid, const std::string& proc = "/proc");

/// May one of its threads have this name (comm of proc(5))? True too when that can't be seen.
bool may_have_thread(pid_t pid, std::string_view name, const std::string& proc = "/proc");

/// The number of its user namespace, user_namespaces(7). 0: not known, as for processes of others.
std::uint64_t user_namespace_of(pid_t pid, const std::string& proc = "/proc");

std::string user_name(uid_t uid);

/// The name of the process's user; "" when there is no such process.
std::string owner_of(pid_t pid, const std::string& proc = "/proc");
/// Its command's name (comm of proc(5)); "" when there is no such process.
std::string command_of(pid_t pid, const std::string& proc = "/proc");

}  // namespace plexrl::nodemgr
