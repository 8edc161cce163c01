#pragma once

#include <atomic>

namespace plexrl::interpose {

/// What the environment says about interposing, read once at the first question.
///
///   PLEXRL_DISABLE=1           catch nothing: every lookup answers as if PlexRL were not there,
///   and
///                              every exported function goes straight to the driver
///   PLEXRL_DRIVER_CAP=VERSION  answer as a driver of this version (12080 is 12.8; 0 or nonsense:
///   no
///                              cap), so that a program asks for nothing that PlexRL doesn't know
///
/// Threads: any. Takes no lock, allocates nothing, works before main.

namespace internal {
enum class Bypass : unsigned char { kUnread, kNo, kYes };
extern std::atomic<Bypass> bypass;
bool read_bypass() noexcept;
}  // namespace internal

/// Hot: one load and a predicted branch.
[[gnu::always_inline]] inline bool bypassed() noexcept {
  const internal::Bypass state = internal::bypass.load(std::memory_order_relaxed);
  if (state == internal::Bypass::kNo) [[likely]]
    return false;
  return state == internal::Bypass::kYes || internal::read_bypass();
}

/// From now on everything goes straight to the driver. For a process that finds at cuInit that it
/// must stay untouched: anything that was already handled stays the handlers' business.
void bypass_from_now_on() noexcept;

/// The version of PLEXRL_DRIVER_CAP, or 0.
int driver_cap() noexcept;

}  // namespace plexrl::interpose
