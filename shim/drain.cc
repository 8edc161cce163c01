#include "shim/drain.h"

#include <algorithm>
#include <cstdio>

namespace plexrl::shim {
namespace {

constexpr std::uint64_t kShortestPauseNs = 50'000;
constexpr std::uint64_t kLongestPauseNs = 2'000'000;

std::string name_obstacle(const Activity::Look& look) {
  char text[112];
  if (look.capturing) return "capture in progress";
  if (look.busy != 0) {
    std::snprintf(
        text, sizeof text, "stream 0x%llx busy, %u in all",
        static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(look.busy_stream)),
        look.busy);
  } else {
    std::snprintf(text, sizeof text, "%u threads inside the driver", look.inside);
  }
  return text;
}

}  // namespace

Drain::State Drain::step(std::uint64_t now_ns, const Activity::Look& look) {
#ifdef PLEXRL_MUTANT_DRAIN
  return State::kDrained;  // test builds only: the suite must notice a drain that doesn't wait
#endif
  if (look.progressed || look.inside < inside_) {
    if (inside_ != ~0u) progress_ns_ = now_ns;
  }
  inside_ = look.inside;
  if (look.finished) return State::kDrained;
  if (look.capturing || now_ns - progress_ns_ >= budget_ns_) {
    obstacle_ = name_obstacle(look);
    return State::kFailed;
  }
  return State::kPending;
}

std::uint64_t Drain::pause_ns(std::uint64_t now_ns) const noexcept {
  return std::clamp((now_ns - progress_ns_) / 8, kShortestPauseNs, kLongestPauseNs);
}

}  // namespace plexrl::shim
