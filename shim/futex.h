#pragma once

#include <atomic>
#include <cstdint>

namespace plexrl::shim {

/// Sleeps while `*word == expected`. May return at any time without reason: the caller checks
/// again. A signal handler that runs meanwhile is followed by a return. `errno` is preserved.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept;

/// Wakes every thread of this process that sleeps on `word`. `errno` is preserved.
void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace plexrl::shim
