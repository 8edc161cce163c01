#pragma once

#include <functional>
#include <map>
#include <string>

#include "nodemgr/event_loop.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// The administration socket: a stream of lines, each a request, each answered by one line. A peer
/// that sends a line of more than 64 KiB, or does not take its answers, is cut off.
class AdminServer {
 public:
  using Answer = std::function<std::string(const std::string& request)>;

  AdminServer(EventLoop& loop, ScopedFd listener, Answer answer);
  ~AdminServer();

 private:
  struct Peer {
    ScopedFd socket;
    std::string in, out;
  };
  void accept_all();
  void ready(int fd, std::uint32_t events);
  bool receive(Peer& peer);
  bool answer_lines(Peer& peer);
  bool send(Peer& peer);

  EventLoop& loop_;
  ScopedFd listener_;
  Answer answer_;
  std::map<int, Peer> peers_;
};

}  // namespace plexrl::nodemgr
