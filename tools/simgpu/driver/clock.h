#pragma once

#include <time.h>

#include <cstdint>

namespace plexrl::simgpu {

/// CLOCK_BOOTTIME in ns: the simulated devices' clock, the same in every process of a machine.
inline std::uint64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(time.tv_nsec);
}

inline void sleep_until_ns(std::uint64_t when) {
  const timespec time{static_cast<time_t>(when / 1'000'000'000u),
                      static_cast<long>(when % 1'000'000'000u)};
  while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &time, nullptr) != 0 && now_ns() < when) {
  }
}

}  // namespace plexrl::simgpu
