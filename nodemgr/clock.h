#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace plexrl::nodemgr {

/// CLOCK_BOOTTIME, the time of leases, messages and traces: it goes on while the machine sleeps.
inline std::chrono::nanoseconds boot_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// CLOCK_REALTIME in ns since 1970.
inline std::int64_t wall_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace plexrl::nodemgr
