#pragma once

#include <cstdint>
#include <optional>

#include "shim/activity.h"

namespace plexrl::shim {

/// Finds the moment at which a process with an open gate became idle: everything it submitted has
/// finished, and it has submitted nothing for the grace time.
///
/// Pure: the agent looks, asks here what that means, and waits as long as told. Once idle nobody
/// polls any more: the gate is armed, and the next call says so itself. Times are CLOCK_BOOTTIME in
/// ns.
class IdleWatch {
 public:
  explicit IdleWatch(std::uint64_t grace_ns) noexcept : grace_ns_(grace_ns) {}

  /// The process has work again, or may have.
  void busy() noexcept;

  /// After a look. The moment of idleness when the grace time has passed since; else none.
  std::optional<std::uint64_t> step(std::uint64_t now_ns, const Activity::Look& look,
                                    std::uint64_t calls) noexcept;

  /// Until the next look is due.
  std::uint64_t pause_ns(std::uint64_t now_ns) const noexcept;

 private:
  std::uint64_t grace_ns_;
  std::uint64_t finished_ns_ = 0;  ///< 0: not finished at the last look
  std::uint64_t calls_ = 0;        ///< at the last look
  std::uint64_t pause_ns_ = kShortestPauseNs;

  static constexpr std::uint64_t kShortestPauseNs = 200'000;
  static constexpr std::uint64_t kLongestPauseNs = 2'000'000;
};

}  // namespace plexrl::shim
