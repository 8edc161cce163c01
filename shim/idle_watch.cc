#include "shim/idle_watch.h"

#include <algorithm>

namespace plexrl::shim {

void IdleWatch::busy() noexcept {
  finished_ns_ = 0;
  pause_ns_ = kShortestPauseNs;
}

std::optional<std::uint64_t> IdleWatch::step(std::uint64_t now_ns, const Activity::Look& look,
                                             std::uint64_t calls) noexcept {
  const bool submitted = calls != calls_;
  calls_ = calls;
  if (!look.finished) {
    finished_ns_ = 0;
    // Something runs for long: looking more often brings nothing.
    pause_ns_ =
        look.progressed || submitted ? kShortestPauseNs : std::min(pause_ns_ * 2, kLongestPauseNs);
    return std::nullopt;
  }
  if (finished_ns_ == 0 || submitted) {
    finished_ns_ = now_ns;
    return std::nullopt;
  }
  if (now_ns - finished_ns_ < grace_ns_) return std::nullopt;
  return finished_ns_;
}

std::uint64_t IdleWatch::pause_ns(std::uint64_t now_ns) const noexcept {
  if (finished_ns_ == 0) return pause_ns_;
  const std::uint64_t due = finished_ns_ + grace_ns_;
  return due > now_ns ? due - now_ns : 0;
}

}  // namespace plexrl::shim
