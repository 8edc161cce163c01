#include "interpose/unknown_entry.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "interpose/handlers.h"

namespace plexrl::interpose {
namespace {

// unknown_entry_x86_64.S knows the size and the first two members.
struct alignas(128) Slot {
  std::atomic<void*> function;  // set last: who sees it sees the rest
  std::atomic<bool> is_told;
  std::atomic<bool> is_taken;
  int version;
  char name[kNameBytes];
};
static_assert(sizeof(Slot) == 128 && offsetof(Slot, function) == 0 && offsetof(Slot, is_told) == 8);

}  // namespace

extern "C" {
[[gnu::visibility("hidden")]] extern Slot plexrl_unknown_slots[kStandIns];
[[gnu::visibility("hidden")]] extern const std::byte plexrl_unknown_stand_ins[kStandIns][16];
[[gnu::visibility("hidden")]] void plexrl_unknown_called(Slot* slot) noexcept;

Slot plexrl_unknown_slots[kStandIns] = {};

// Two threads whose first calls meet both tell, and neither goes on before it has.
void plexrl_unknown_called(Slot* slot) noexcept {
  const int saved_errno = errno;
  shim::on_unknown_entry(slot->name, slot->version);
  slot->is_told.store(true, std::memory_order_release);
  errno = saved_errno;
}
}

void* stand_in(void* function, const char* name, int version) noexcept {
  auto address = [](size_t i) { return const_cast<std::byte*>(plexrl_unknown_stand_ins[i]); };
  for (size_t i = 0; i < kStandIns; ++i) {
    if (plexrl_unknown_slots[i].function.load(std::memory_order_acquire) == function) {
      return address(i);
    }
  }
  for (size_t i = 0; i < kStandIns; ++i) {
    Slot& slot = plexrl_unknown_slots[i];
    if (slot.is_taken.exchange(true, std::memory_order_relaxed)) continue;
    slot.version = version;
    const size_t length = std::min(std::strlen(name), kNameBytes - 1);
    std::memcpy(slot.name, name, length);
    slot.function.store(function, std::memory_order_release);  // pairs with the acquire above
    return address(i);
  }
  return nullptr;
}

}  // namespace plexrl::interpose
