#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/scoped_fd.h"
#include "shim/wire.h"

/// Packets of shim/wire.h on a SOCK_SEQPACKET socket. What arrives is untrusted: it is copied here,
/// and a body is only handed out when its size is that of the struct asked for.
namespace plexrl::nodemgr {

struct Packet {
  wire::Type type{};
  std::uint64_t request = 0;
  std::vector<std::byte> body;
  std::vector<ScopedFd> fds;

  /// Copies the body into `out`; false when the size differs.
  template <typename Body>
  [[nodiscard]] bool read(Body& out) const {
    static_assert(std::is_trivially_copyable_v<Body>);
    if (body.size() != sizeof(Body)) return false;
    std::memcpy(&out, body.data(), sizeof(Body));
    return true;
  }
};

enum class Received { kPacket, kNothing, kEnd, kMalformed };

/// Takes one packet without waiting. kEnd: the peer is gone. kMalformed: no valid header, a version
/// we do not speak, more than kMaxPacketBytes, or too many descriptors; `why` says which.
Received receive_packet(int socket, Packet& packet, std::string& why);

/// Sends without waiting; a full socket buffer is an error, and so is a peer that is gone.
[[nodiscard]] absl::Status send_packet(int socket, wire::Type type, std::uint64_t request,
                                       std::span<const std::byte> body,
                                       std::span<const int> fds = {});

/// A text field as one printable line: cut at its NUL (or its end), control characters as '?'.
std::string field_text(const char* field, std::size_t size);
template <std::size_t N>
std::string field_text(const char (&field)[N]) {
  return field_text(field, N);
}
/// Copies a text into a field, cut to fit, NUL-terminated.
void set_field(char* field, std::size_t size, const std::string& text);
template <std::size_t N>
void set_field(char (&field)[N], const std::string& text) {
  set_field(field, N, text);
}

}  // namespace plexrl::nodemgr
