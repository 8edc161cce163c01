#include "shim/connection.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "connection";

class PreservedErrno {
 public:
  ~PreservedErrno() { errno = saved_; }

 private:
  int saved_ = errno;
};

void take_fds(const msghdr& message, Packet* packet) noexcept {
  for (ScopedFd& fd : packet->fds) fd.reset();
  std::size_t count = 0;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&message), control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t fds = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < fds; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof fd);
      ScopedFd owned(fd);
      if (count < packet->fds.size()) packet->fds[count++] = std::move(owned);
    }
  }
}

bool is_valid(const wire::Header& header, std::size_t received, int flags) noexcept {
  return header.magic == wire::kMagic && header.version >= wire::kMinVersion &&
         header.version <= wire::kVersion && (flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
         header.bytes == received - sizeof header;
}

}  // namespace

bool lacks_descriptors() noexcept {
  const PreservedErrno preserved;
  constexpr int kNeeded = 4;  // the socket, two pages, and one to wake the agent
  ScopedFd some[kNeeded];
  for (ScopedFd& one : some) {
    one.reset(::eventfd(0, EFD_CLOEXEC));
    if (!one.valid()) return errno == EMFILE || errno == ENFILE;
  }
  return false;
}

ScopedFd dial(const char* path) noexcept {
  const PreservedErrno preserved;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof address.sun_path) return {};
  std::strcpy(address.sun_path, path);
  ScopedFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return {};
  int result = 0;
  do {
    result = ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? std::move(socket) : ScopedFd{};
}

void Connection::attach(ScopedFd socket) {
  const std::lock_guard lock(mutex_);
  socket_ = std::move(socket);
  outbox_.clear();
}

void Connection::close() {
  const std::lock_guard lock(mutex_);
  socket_.reset();
  outbox_.clear();
}

ScopedFd Connection::release() {
  const std::lock_guard lock(mutex_);
  outbox_.clear();
  return std::move(socket_);
}

void Connection::leave_to_parent() noexcept {
  const int fd = socket_.get();
  int type = 0;
  socklen_t size = sizeof type;
  // Whatever the parent's agent was just doing with it: nothing but such a socket is closed.
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET) {
    ::close(fd);
  }
}

bool Connection::is_open() const noexcept {
  const std::lock_guard lock(mutex_);
  return socket_.valid();
}

bool Connection::send(wire::Type type, const void* body, std::size_t bytes, std::uint64_t request) {
  const PreservedErrno preserved;
  const wire::Header header = wire::header_of(type, bytes, request);
  std::vector<std::byte> packet(sizeof header + bytes);
  std::memcpy(packet.data(), &header, sizeof header);
  if (bytes != 0) std::memcpy(packet.data() + sizeof header, body, bytes);
  const std::lock_guard lock(mutex_);
  if (!socket_.valid()) return false;
  bool would_block = !outbox_.empty();
  if (!would_block && send_now(packet, &would_block)) return true;
  if (!would_block) return false;
  outbox_.push_back(std::move(packet));
  return true;
}

bool Connection::send_now(const std::vector<std::byte>& packet, bool* would_block) {
  ssize_t sent = -1;
  do {
    sent = ::send(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  *would_block = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS);
  return sent >= 0;
}

bool Connection::send_with_fds(wire::Type type, const void* body, std::size_t bytes, const int* fds,
                               std::size_t fd_count) {
  const PreservedErrno preserved;
  return try_with_fds(type, body, bytes, fds, fd_count, 0) == Sent::kDone;
}

bool Connection::send_with_fd_patiently(wire::Type type, const void* body, std::size_t bytes,
                                        int fd, std::uint64_t request) {
  const PreservedErrno preserved;
  while (flush()) {
    const Sent sent = try_with_fds(type, body, bytes, &fd, 1, request);
    if (sent != Sent::kLater) return sent == Sent::kDone;
    pollfd wanted{socket_.get(), POLLOUT, 0};
    ::poll(&wanted, 1, -1);
    if ((wanted.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return false;
  }
  return false;
}

Connection::Sent Connection::try_with_fds(wire::Type type, const void* body, std::size_t bytes,
                                          const int* fds, std::size_t fd_count,
                                          std::uint64_t request) {
  wire::Header header = wire::header_of(type, bytes, request);
  iovec parts[2] = {{&header, sizeof header}, {const_cast<void*>(body), bytes}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * wire::kMaxPacketFds)] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
  std::memcpy(CMSG_DATA(part), fds, sizeof(int) * fd_count);
  const std::lock_guard lock(mutex_);
  if (!socket_.valid()) return Sent::kNever;
  if (!outbox_.empty()) return Sent::kLater;
  if (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::kDone;
  const bool may_pass =
      errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == EINTR;
  return may_pass ? Sent::kLater : Sent::kNever;
}

bool Connection::flush() {
  const PreservedErrno preserved;
  const std::lock_guard lock(mutex_);
  while (!outbox_.empty()) {
    bool would_block = false;
    if (!send_now(outbox_.front(), &would_block)) return would_block;
    outbox_.pop_front();
  }
  return true;
}

bool Connection::wants_to_send() const {
  const std::lock_guard lock(mutex_);
  return !outbox_.empty();
}

Connection::Received Connection::receive(Packet* packet) {
  const PreservedErrno preserved;
  wire::Header header{};
  iovec parts[2] = {{&header, sizeof header}, {packet->body.data(), packet->body.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * wire::kMaxPacketFds)];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received = -1;
  do {
    received = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Received::kNothing;
  if (received <= 0) return Received::kClosed;
  take_fds(message, packet);
  const auto bytes = static_cast<std::size_t>(received);
  if ((message.msg_flags & MSG_CTRUNC) != 0 && lacks_descriptors()) {
    static std::atomic<bool> said{false};
    PLEXRL_LOG_AT(kFile, said.exchange(true) ? LogLevel::kDebug : LogLevel::kWarning,
                  "no descriptor is free for what the node manager sends, connecting again: raise "
                  "the limit of open files (ulimit -n)");
    return Received::kClosed;
  }
  if (bytes < sizeof header || !is_valid(header, bytes, message.msg_flags)) {
    PLEXRL_WARN(kFile, "malformed packet bytes=%zu type=0x%x, closing the connection", bytes,
                header.type);
    return Received::kClosed;
  }
  packet->type = static_cast<wire::Type>(header.type);
  packet->request = header.request;
  packet->bytes = header.bytes;
  return Received::kPacket;
}

bool Connection::wait_readable(int timeout_ms) const noexcept {
  const PreservedErrno preserved;
  pollfd wanted{socket_.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&wanted, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;
}

}  // namespace plexrl::shim
