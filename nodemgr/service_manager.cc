#include "nodemgr/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

/// Where a UNIX socket is bound; "" when it is none, or bound to no file.
std::string path_of(int fd) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sun_family != AF_UNIX || address.sun_path[0] != '/') {
    return "";
  }
  return address.sun_path;
}

absl::Status check(const PassedSocket& socket, const char* name, int type) {
  if (!socket.fd.is_open()) {
    return invalid("systemd passed no socket with FileDescriptorName=", name,
                   ": start plexrl-nodemgr.socket and plexrl-nodemgr-admin.socket together");
  }
  if (socket.path.empty() ||
      ::sd_is_socket_unix(socket.fd.get(), type, 1, socket.path.c_str(), 0) <= 0) {
    return invalid("the socket '", name, "' that systemd passed is not a listening one of type ",
                   type == SOCK_SEQPACKET ? "ListenSequentialPacket" : "ListenStream",
                   " with a path: mend its .socket unit");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PassedSockets> take_passed_sockets() {
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(1, &names);
  std::vector<std::pair<std::string, ScopedFd>> passed;
  for (int i = 0; i < count; ++i) {
    passed.emplace_back(names != nullptr && names[i] != nullptr ? names[i] : "",
                        ScopedFd(SD_LISTEN_FDS_START + i));
    if (names != nullptr) std::free(names[i]);
  }
  std::free(names);
  PassedSockets sockets;
  for (auto& [name, fd] : passed) {
    PassedSocket* const target = name == "jobs"       ? &sockets.jobs
                                 : name == "admin"    ? &sockets.admin
                                 : name == "observer" ? &sockets.observer
                                                      : nullptr;
    if (target == nullptr || target->fd.is_open()) {
      return invalid("systemd passed a socket named '", name,
                     "': one with FileDescriptorName=jobs, one with =admin and one with =observer "
                     "are taken");
    }
    ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
    target->path = path_of(fd.get());
    target->fd = std::move(fd);
  }
  if (count <= 0) return sockets;
  absl::Status status = check(sockets.jobs, "jobs", SOCK_SEQPACKET);
  if (status.ok()) status = check(sockets.admin, "admin", SOCK_STREAM);
  if (status.ok() && sockets.observer.fd.is_open()) {
    status = check(sockets.observer, "observer", SOCK_STREAM);
  }
  if (!status.ok()) return status;
  return sockets;
}

void tell_ready(const std::string& status) {
  ::sd_notify(0, cat("READY=1\nSTATUS=", status).c_str());
}

void tell_stopping() { ::sd_notify(0, "STOPPING=1"); }

void tell_alive() { ::sd_notify(0, "WATCHDOG=1"); }

std::chrono::nanoseconds alive_interval() {
  std::uint64_t within_us = 0;
  if (::sd_watchdog_enabled(0, &within_us) <= 0) return {};
  return std::chrono::microseconds(within_us / 2);
}

}  // namespace plexrl::nodemgr
