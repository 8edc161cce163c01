#include "nodemgr/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "nodemgr/clock.h"

namespace plexrl::nodemgr {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

void EventLoop::watch(int fd, std::uint32_t events, Ready ready) {
  bool known = watched_.count(fd) != 0;
  std::uint32_t generation = ++generation_;
  watched_[fd] = {generation, std::make_shared<Ready>(std::move(ready))};
  epoll_event event{};
  event.events = events;
  // The generation tells an event of this descriptor from one of an earlier one with its number.
  event.data.u64 = (std::uint64_t{generation} << 32) | static_cast<std::uint32_t>(fd);
  ::epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
}

void EventLoop::forget(int fd) {
  if (watched_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::set_timer(int id, Instant at, std::function<void()> fire) {
  timers_[id] = {at, std::move(fire)};
}

void EventLoop::set_timer_once(int id, Instant at, std::function<void()> fire) {
  if (timers_.count(id) == 0) set_timer(id, at, std::move(fire));
}

void EventLoop::cancel_timer(int id) { timers_.erase(id); }

int EventLoop::fire_timers() {
  Instant now = boot_now();
  std::vector<int> due;
  for (const auto& [id, timer] : timers_) {
    if (timer.at <= now) due.push_back(id);
  }
  int fired = 0;
  for (int id : due) {
    auto it = timers_.find(id);
    if (it == timers_.end() || it->second.at > now) continue;  // an earlier callback moved it
    auto fire = std::move(it->second.fire);
    timers_.erase(it);
    fire();
    ++fired;
  }
  return fired;
}

int EventLoop::run_once(std::chrono::nanoseconds longest) {
  std::chrono::nanoseconds wait = longest;
  if (!timers_.empty()) {
    Instant next = Instant::max();
    for (const auto& [id, timer] : timers_) next = std::min(next, timer.at);
    auto until = std::max(std::chrono::nanoseconds(0), next - boot_now());
    wait = wait.count() < 0 ? until : std::min(wait, until);
  }
  timespec timeout{};
  timeout.tv_sec = wait.count() / 1'000'000'000;
  timeout.tv_nsec = wait.count() % 1'000'000'000;
  epoll_event events[64];
  int count =
      ::epoll_pwait2(epoll_.get(), events, 64, wait.count() < 0 ? nullptr : &timeout, nullptr);
  int served = 0;
  for (int i = 0; i < count; ++i) {
    int fd = static_cast<int>(events[i].data.u64 & 0xffffffff);
    auto it = watched_.find(fd);
    if (it == watched_.end() || it->second.generation != events[i].data.u64 >> 32) continue;
    std::shared_ptr<Ready> ready = it->second.ready;  // the callback may forget itself
    (*ready)(events[i].events);
    ++served;
  }
  return served + fire_timers();
}

}  // namespace plexrl::nodemgr
