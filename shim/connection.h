#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "shim/scoped_fd.h"
#include "shim/wire.h"

namespace plexrl::shim {

/// One packet of shim/wire.h as it came in, header checked.
struct Packet {
  wire::Type type = wire::Type::kError;
  std::uint64_t request = 0;
  std::size_t bytes = 0;
  alignas(8) std::array<std::byte, wire::kMaxPacketBytes> body;
  std::array<ScopedFd, wire::kMaxPacketFds> fds;

  /// The body as T; null unless it has exactly T's size.
  template <typename T>
  const T* as() const noexcept {
    return bytes == sizeof(T) ? reinterpret_cast<const T*>(body.data()) : nullptr;
  }
};

/// The socket to the node manager: whole packets out and in, nothing of their meaning.
///
/// Sending never blocks: what the socket does not take is queued, and `flush` sends it when poll
/// says POLLOUT, so a stopped manager stops no thread of the job. Order is kept. Threads: `send` by
/// any, the rest by the agent. `errno` is preserved.
class Connection {
 public:
  enum class Received { kPacket, kNothing, kClosed };

  /// Takes over a connected SOCK_SEQPACKET socket.
  void attach(ScopedFd socket);
  void close();
  /// Gives the socket away; this connection is then closed.
  ScopedFd release();
  bool is_open() const noexcept;
  /// In a child of fork: closes the child's copy of the socket, which is the parent's, so that the
  /// manager sees the end of the parent's program though the child lives. Nothing else may be
  /// called there. Takes no lock: a thread that the child doesn't have may hold it.
  void leave_to_parent() noexcept;
  int fd() const noexcept { return socket_.get(); }

  /// False when the connection is closed; the packet is then dropped.
  bool send(wire::Type type, const void* body, std::size_t bytes, std::uint64_t request);
  template <typename T>
  bool send(wire::Type type, const T& body, std::uint64_t request = 0) {
    return send(type, &body, sizeof body, request);
  }
  /// With descriptors, which stay the caller's. Sent at once or, false, not at all.
  bool send_with_fds(wire::Type type, const void* body, std::size_t bytes, const int* fds,
                     std::size_t fd_count);
  /// With one descriptor, after all that was sent before: waits while the socket is full. False:
  /// the connection is closed or broken. Agent.
  bool send_with_fd_patiently(wire::Type type, const void* body, std::size_t bytes, int fd,
                              std::uint64_t request);
  bool flush();
  bool wants_to_send() const;

  /// A packet that breaks the rules of wire.h closes the connection, as the peer's death does.
  Received receive(Packet* packet);
  /// Sleeps until something can be received, the connection breaks, or `timeout_ms` passed (−1: no
  /// limit). False: timed out.
  bool wait_readable(int timeout_ms) const noexcept;

 private:
  enum class Sent { kDone, kLater, kNever };
  Sent try_with_fds(wire::Type type, const void* body, std::size_t bytes, const int* fds,
                    std::size_t fd_count, std::uint64_t request);
  bool send_now(const std::vector<std::byte>& packet, bool* would_block);

  mutable std::mutex mutex_;
  ScopedFd socket_;
  std::deque<std::vector<std::byte>> outbox_;
};

/// Connects to the Unix socket at `path`; invalid when nobody listens.
ScopedFd dial(const char* path) noexcept;

/// Whether this process, or the machine, has no room for the descriptors of a connection: a reason
/// why nobody seems to answer.
bool lacks_descriptors() noexcept;

}  // namespace plexrl::shim
