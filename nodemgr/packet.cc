#include "nodemgr/packet.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/utf8.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int) * 16);

void take_fds(msghdr& message, std::vector<ScopedFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

Received receive_packet(int socket, Packet& packet, std::string& why) {
  std::array<std::byte, wire::kMaxPacketBytes + 1> buffer;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control;
  iovec data{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kEnd;
  if (got == 0) return Received::kEnd;
  packet.fds.clear();
  take_fds(message, packet.fds);
  wire::Header header;
  auto size = static_cast<std::size_t>(got);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || size < sizeof header) {
    why = cat("packet of ", size, " bytes");
    return Received::kMalformed;
  }
  std::memcpy(&header, buffer.data(), sizeof header);
  if (header.magic != wire::kMagic) {
    why = "wrong magic number";
  } else if (header.version < wire::kMinVersion || header.version > wire::kVersion) {
    why = cat("version ", header.version, ", this manager speaks ", wire::kMinVersion, " to ",
              wire::kVersion);
  } else if (header.bytes != size - sizeof header) {
    why = cat("header says ", header.bytes, " bytes, packet has ", size - sizeof header);
  } else if (packet.fds.size() > static_cast<std::size_t>(wire::kMaxPacketFds)) {
    why = cat(packet.fds.size(), " descriptors");
  } else {
    packet.type = static_cast<wire::Type>(header.type);
    packet.request = header.request;
    packet.body.assign(buffer.data() + sizeof header, buffer.data() + size);
    return Received::kPacket;
  }
  return Received::kMalformed;
}

absl::Status send_packet(int socket, wire::Type type, std::uint64_t request,
                         std::span<const std::byte> body, std::span<const int> fds) {
  wire::Header header = wire::header_of(type, body.size(), request);
  iovec parts[2] = {{&header, sizeof header}, {const_cast<std::byte*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return failed("send: ", std::strerror(errno));
  return absl::OkStatus();
}

std::string field_text(const char* field, std::size_t size) {
  return as_line({field, std::find(field, field + size, '\0')});
}

void set_field(char* field, std::size_t size, const std::string& text) {
  std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(field, text.data(), length);
  std::memset(field + length, 0, size - length);
}

}  // namespace plexrl::nodemgr
