#pragma once

#include <time.h>

#include <cstdint>

namespace plexrl::shim {

/// CLOCK_BOOTTIME in nanoseconds: the clock of leases (shim/wire.h).
inline std::uint64_t boottime_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// Adds the time from its construction to its end to `*sum`.
class AddElapsed {
 public:
  explicit AddElapsed(std::uint64_t* sum) noexcept : sum_(sum), start_(boottime_ns()) {}
  ~AddElapsed() { *sum_ += boottime_ns() - start_; }
  AddElapsed(const AddElapsed&) = delete;
  AddElapsed& operator=(const AddElapsed&) = delete;

 private:
  std::uint64_t* sum_;
  std::uint64_t start_;
};

}  // namespace plexrl::shim
