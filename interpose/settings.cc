#include "interpose/settings.h"

#include <cstdlib>
#include <cstring>

namespace plexrl::interpose {
namespace internal {

constinit std::atomic<Bypass> bypass{Bypass::kUnread};

[[gnu::cold, gnu::noinline]] bool read_bypass() noexcept {
  const char* value = std::getenv("PLEXRL_DISABLE");
  const bool disabled = value != nullptr && std::strcmp(value, "1") == 0;
  Bypass unread = Bypass::kUnread;
  bypass.compare_exchange_strong(unread, disabled ? Bypass::kYes : Bypass::kNo,
                                 std::memory_order_relaxed);
  return bypass.load(std::memory_order_relaxed) == Bypass::kYes;
}

}  // namespace internal

void bypass_from_now_on() noexcept {
  internal::bypass.store(internal::Bypass::kYes, std::memory_order_relaxed);
}

int driver_cap() noexcept {
  constexpr int kUnread = -1;
  static constinit std::atomic<int> cap{kUnread};
  int version = cap.load(std::memory_order_relaxed);
  if (version != kUnread) return version;
  const char* value = std::getenv("PLEXRL_DRIVER_CAP");
  char* end = nullptr;
  const long parsed = value != nullptr ? std::strtol(value, &end, 10) : 0;
  const bool is_version = parsed > 0 && parsed < 1'000'000 && *end == '\0';
  version = is_version ? static_cast<int>(parsed) : 0;
  cap.store(version, std::memory_order_relaxed);
  return version;
}

}  // namespace plexrl::interpose
