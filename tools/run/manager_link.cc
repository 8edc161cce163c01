#include "tools/run/manager_link.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

namespace plexrl::run {
namespace {

using Packet = std::array<char, wire::kMaxPacketBytes>;

template <typename Body>
std::optional<Body> body_of(const Packet& packet, size_t bytes) {
  if (bytes != sizeof(wire::Header) + sizeof(Body)) return std::nullopt;
  Body body;
  std::memcpy(&body, packet.data() + sizeof(wire::Header), sizeof body);
  return body;
}

template <size_t N>
std::string text_of(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

absl::Status gone() { return absl::UnavailableError("the node manager closed the connection"); }

absl::Status connect_error(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EPROTOTYPE:
      return absl::FailedPreconditionError(absl::StrCat(path, " is not a node manager's socket"));
    default:
      return absl::UnavailableError(text);
  }
}

}  // namespace

absl::StatusOr<ManagerLink> ManagerLink::connect(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("the socket's path is longer than ",
                                                   sizeof address.sun_path - 1, " bytes: ", path,
                                                   "; set PLEXRL_SOCKET to a shorter one"));
  }
  path.copy(address.sun_path, path.size());
  ScopedFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return absl::InternalError(absl::StrCat("socket: ", strerror(errno)));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return connect_error(path, errno);
  }
  return ManagerLink(std::move(socket));
}

bool ManagerLink::is_another_users() const {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid != geteuid();
}

absl::Status ManagerLink::send(wire::Type type, const void* body, size_t bytes) {
  Packet packet{};
  const wire::Header header = wire::header_of(type, bytes, 1);
  std::memcpy(packet.data(), &header, sizeof header);
  if (bytes != 0) std::memcpy(packet.data() + sizeof header, body, bytes);
  ssize_t sent;
  do {
    sent = ::send(socket_.get(), packet.data(), sizeof header + bytes, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? gone() : absl::OkStatus();
}

absl::Status ManagerLink::submit(const wire::JobSubmit& job) {
  return send(wire::Type::kJobSubmit, &job, sizeof job);
}

absl::Status ManagerLink::resume(const wire::JobResume& job) {
  return send(wire::Type::kJobResume, &job, sizeof job);
}

absl::Status ManagerLink::join(const wire::JobJoin& job) {
  return send(wire::Type::kJobJoin, &job, sizeof job);
}

absl::Status ManagerLink::name_parent(const wire::JobParent& parent) {
  return send(wire::Type::kJobParent, &parent, sizeof parent);
}

absl::Status ManagerLink::say_exiting() { return send(wire::Type::kExiting, nullptr, 0); }

absl::StatusOr<ManagerLink::Answer> ManagerLink::receive() {
  for (;;) {
    Packet packet;
    const ssize_t got = recv(socket_.get(), packet.data(), packet.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return gone();
    const auto bytes = static_cast<size_t>(got);
    wire::Header header{};
    if (bytes >= sizeof header) std::memcpy(&header, packet.data(), sizeof header);
    if (header.magic != wire::kMagic || header.bytes != bytes - sizeof header) {
      return absl::DataLossError("the node manager sent a packet that is not PlexRL's");
    }
    const auto type = static_cast<wire::Type>(header.type);
    if (type == wire::Type::kJobAdmitted) {
      if (const auto body = body_of<wire::JobAdmitted>(packet, bytes)) {
        return Answer{Answer::Kind::kAdmitted, *body, ""};
      }
    } else if (type == wire::Type::kJobQueued || type == wire::Type::kJobRefused) {
      const bool queued = type == wire::Type::kJobQueued;
      if (const auto body = body_of<wire::JobNotice>(packet, bytes)) {
        return Answer{
            queued ? Answer::Kind::kQueued : Answer::Kind::kRefused, {}, text_of(body->text)};
      }
    } else if (type == wire::Type::kError) {
      if (const auto body = body_of<wire::Error>(packet, bytes)) {
        return Answer{Answer::Kind::kError, {}, text_of(body->text)};
      }
    } else {
      continue;
    }
    return absl::DataLossError(absl::StrCat("the node manager sent a packet of type ", header.type,
                                            " with ", header.bytes,
                                            " bytes, which this version does not know"));
  }
}

}  // namespace plexrl::run
