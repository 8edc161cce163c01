#include "interpose/api.h"

#include <array>

namespace plexrl::interpose {
namespace {

#define PLEXRL_REASON_pass(detail) nullptr
#define PLEXRL_REASON_through(detail) detail
#define PLEXRL_REASON_gate(detail) nullptr
#define PLEXRL_REASON_host(detail) nullptr
#define PLEXRL_REASON_room(detail) nullptr
#define PLEXRL_REASON_memory(detail) nullptr
#define PLEXRL_REASON_query(detail) nullptr
#define PLEXRL_REASON_track(detail) nullptr
#define PLEXRL_REASON_refuse(detail) nullptr
#define PLEXRL_REASON_took(detail) nullptr
#define PLEXRL_REASON_gave(detail) nullptr
#define PLEXRL_REASON_lookup(detail) nullptr

constexpr std::array<ApiRow, kApiCount + 1> kRows = {{
#define API(symbol, since, cls, detail, params, args) \
  {#symbol, since, ApiClass::cls, PLEXRL_REASON_##cls(detail)},
#include "interpose/driver_api.def"
#undef API
    {"unknown", 0, ApiClass::through, "not in the table"},
}};

constexpr std::string_view kHarmless[] = {
#define HARMLESS(symbol) #symbol,
#include "interpose/harmless.def"
#undef HARMLESS
};

// FNV-1a.
constexpr uint32_t hash(std::string_view symbol) noexcept {
  uint32_t h = 2166136261u;
  for (const char c : symbol) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

// Open addressing: a slot holds a row's number, or kApiCount where it is free.
constexpr size_t kSlots = 2048;
static_assert(kSlots > 2 * kApiCount);

consteval std::array<uint16_t, kSlots> index_by_name() {
  std::array<uint16_t, kSlots> slots{};
  slots.fill(static_cast<uint16_t>(kApiCount));
  for (size_t i = 0; i < kApiCount; ++i) {
    size_t slot = hash(kRows[i].name) % kSlots;
    while (slots[slot] != kApiCount) slot = (slot + 1) % kSlots;
    slots[slot] = static_cast<uint16_t>(i);
  }
  return slots;
}

constexpr std::array<uint16_t, kSlots> kByName = index_by_name();

}  // namespace

const ApiRow& row(Api api) noexcept {
  const size_t i = static_cast<size_t>(api);
  return kRows[i < kApiCount ? i : kApiCount];
}

Api find_api(std::string_view symbol) noexcept {
  for (size_t slot = hash(symbol) % kSlots; kByName[slot] != kApiCount;
       slot = (slot + 1) % kSlots) {
    if (symbol == kRows[kByName[slot]].name) return static_cast<Api>(kByName[slot]);
  }
  return Api::kCount;
}

bool is_harmless(std::string_view symbol) noexcept {
  for (const std::string_view known : kHarmless) {
    if (known == symbol) return true;
  }
  return false;
}

}  // namespace plexrl::interpose
