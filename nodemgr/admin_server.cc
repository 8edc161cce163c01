#include "nodemgr/admin_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace plexrl::nodemgr {
namespace {

constexpr std::size_t kMaxLineBytes = 64 << 10;
constexpr std::size_t kMaxPendingBytes = 16 << 20;
constexpr std::size_t kMaxPeers = 64;

}  // namespace

AdminServer::AdminServer(EventLoop& loop, ScopedFd listener, Answer answer)
    : loop_(loop), listener_(std::move(listener)), answer_(std::move(answer)) {
  loop_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_all(); });
}

AdminServer::~AdminServer() {
  loop_.forget(listener_.get());
  for (auto& [fd, peer] : peers_) loop_.forget(fd);
}

void AdminServer::accept_all() {
  while (true) {
    ScopedFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    if (peers_.size() >= kMaxPeers) continue;
    int fd = socket.get();
    peers_[fd].socket = std::move(socket);
    loop_.watch(fd, EPOLLIN, [this, fd](std::uint32_t events) { ready(fd, events); });
  }
}

void AdminServer::ready(int fd, std::uint32_t events) {
  Peer& peer = peers_.at(fd);
  bool good = true;
  if ((events & EPOLLIN) != 0) good = receive(peer) && answer_lines(peer);
  if (good) good = send(peer);
  bool hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0 && (events & EPOLLIN) == 0;
  if (!good || hung_up) {
    loop_.forget(fd);
    peers_.erase(fd);
    return;
  }
  std::uint32_t wanted = peer.out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  loop_.watch(fd, wanted, [this, fd](std::uint32_t more) { ready(fd, more); });
}

bool AdminServer::receive(Peer& peer) {
  char buffer[4096];
  ssize_t got = ::recv(peer.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  peer.in.append(buffer, static_cast<std::size_t>(got));
  return got > 0 && peer.in.size() <= kMaxLineBytes;
}

bool AdminServer::answer_lines(Peer& peer) {
  std::size_t end = 0;
  while ((end = peer.in.find('\n')) != std::string::npos) {
    peer.out += answer_(peer.in.substr(0, end)) + "\n";
    peer.in.erase(0, end + 1);
    if (peer.out.size() > kMaxPendingBytes) return false;
  }
  return true;
}

bool AdminServer::send(Peer& peer) {
  while (!peer.out.empty()) {
    ssize_t sent =
        ::send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    peer.out.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace plexrl::nodemgr
