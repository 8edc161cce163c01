#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "nodemgr/scoped_fd.h"

/// What systemd hands to a daemon that it starts, and what it wants to be told: sd_listen_fds(3),
/// sd_notify(3), sd_watchdog_enabled(3). Without systemd there is nothing to take, and telling does
/// nothing. Threads: the daemon's main thread only.
namespace plexrl::nodemgr {

/// A listening UNIX socket of a .socket unit, and where it is.
struct PassedSocket {
  ScopedFd fd;
  std::string path;
};

/// Those that the environment says were passed, by their FileDescriptorName: `jobs` and `admin`,
/// and `observer` where there is one.
struct PassedSockets {
  PassedSocket jobs;
  PassedSocket admin;
  PassedSocket observer;  ///< may be closed: then it is not passed
  bool any() const { return jobs.fd.is_open(); }
};

/// Takes them, non-blocking and close-on-exec. Children see none of it. Fails where something else
/// was passed (another name, `jobs` or `admin` without the other, a socket that does not listen or
/// is of the wrong type: `jobs` SOCK_SEQPACKET, the others SOCK_STREAM), which is closed.
[[nodiscard]] absl::StatusOr<PassedSockets> take_passed_sockets();

/// The daemon serves from now on; `status` is for `systemctl status`.
void tell_ready(const std::string& status);
void tell_stopping();
/// The daemon's loop goes round.
void tell_alive();
/// How often tell_alive is to be called (half of WatchdogSec); 0: nobody waits for it.
std::chrono::nanoseconds alive_interval();

}  // namespace plexrl::nodemgr
