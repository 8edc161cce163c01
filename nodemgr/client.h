#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

#include "nodemgr/packet.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

struct Job;
struct Session;

/// One connection to the job socket. It belongs to a job's plexrl-run, to one of its processes, or
/// (before the first message) to nobody yet.
struct Client {
  ScopedFd socket;
  pid_t pid = 0;  ///< from SO_PEERCRED, as is the uid: what the kernel vouches for
  uid_t uid = 0;
  Job* job = nullptr;          ///< of plexrl-run
  wire::Id128 parent{};        ///< the job that it says to be inside of, before it submits its own
  Session* session = nullptr;  ///< of a process
  bool broken = false;         ///< sending failed or it misbehaved: dropped after this event

  /// A full socket buffer, or a peer that is gone, breaks this client and nobody else.
  void send(wire::Type type, std::uint64_t request, std::span<const std::byte> body,
            std::span<const int> fds = {});
  template <typename Body>
  void send(wire::Type type, std::uint64_t request, const Body& body,
            std::span<const int> fds = {}) {
    send(type, request, std::as_bytes(std::span(&body, 1)), fds);
  }
  void send_error(wire::Type type, std::uint64_t request, wire::ErrorCode code,
                  const std::string& text);
};

}  // namespace plexrl::nodemgr
