#pragma once

#include <chrono>
#include <cstdint>

namespace plexrl::clustermgr {

/// Time of day, for people and for what is stored; never to measure by.
inline std::int64_t unix_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace plexrl::clustermgr
