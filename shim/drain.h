#pragma once

#include <cstdint>
#include <string>

#include "shim/activity.h"

namespace plexrl::shim {

/// One attempt to bring a process to rest (invariant 4): the gate is closed; now everything
/// submitted has to finish and every thread has to leave the driver.
///
/// The attempt ends without success when nothing has progressed for the budget, or at once when a
/// capture is in progress: its thread may need to submit before it can end the capture. Work may
/// wait for work that is not submitted yet, so that is no hang. Agent only; the caller opens the
/// gate again.
class Drain {
 public:
  enum class State { kPending, kDrained, kFailed };

  /// `now_ns` is CLOCK_BOOTTIME; the gate has just been closed.
  Drain(std::uint64_t now_ns, std::uint64_t budget_ns) noexcept
      : closed_ns_(now_ns), progress_ns_(now_ns), budget_ns_(budget_ns) {}

  State step(std::uint64_t now_ns, const Activity::Look& look);

  std::uint64_t closed_ns() const noexcept { return closed_ns_; }
  /// When the last thing was seen to finish; the gate's closing if nothing was outstanding then.
  std::uint64_t last_completion_ns() const noexcept { return progress_ns_; }
  /// After kFailed: what stood in the way, by name.
  const std::string& obstacle() const noexcept { return obstacle_; }
  /// How long to wait before the next look: short at first, longer without progress.
  std::uint64_t pause_ns(std::uint64_t now_ns) const noexcept;

 private:
  std::uint64_t closed_ns_;
  std::uint64_t progress_ns_;
  std::uint64_t budget_ns_;
  std::uint32_t inside_ = ~0u;
  std::string obstacle_;
};

}  // namespace plexrl::shim
