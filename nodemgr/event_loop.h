#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// One epoll loop: descriptors and timers. Everything runs on the thread that calls run_once; only
/// that thread may call the other functions. A callback may watch and forget any descriptor,
/// its own too.
class EventLoop {
 public:
  using Instant = std::chrono::nanoseconds;  ///< boot time
  using Ready = std::function<void(std::uint32_t events)>;

  EventLoop();

  /// Calls `ready` when one of `events` (EPOLLIN …) is there. The descriptor stays the caller's,
  /// who forgets it before closing it.
  void watch(int fd, std::uint32_t events, Ready ready);
  void forget(int fd);

  /// A timer by name of the caller's choice; setting it again moves it. Fires once.
  void set_timer(int id, Instant at, std::function<void()> fire);
  /// Sets it unless it is set already.
  void set_timer_once(int id, Instant at, std::function<void()> fire);
  void cancel_timer(int id);

  /// Waits at most `longest` (negative: for ever) and serves what is ready. Returns how many
  /// callbacks ran.
  int run_once(std::chrono::nanoseconds longest);

 private:
  struct Watched {
    std::uint32_t generation;
    std::shared_ptr<Ready> ready;
  };
  struct Timer {
    Instant at;
    std::function<void()> fire;
  };
  int fire_timers();

  ScopedFd epoll_;
  std::uint32_t generation_ = 0;
  std::map<int, Watched> watched_;
  std::map<int, Timer> timers_;
};

}  // namespace plexrl::nodemgr
