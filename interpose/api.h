#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "interpose/cuda_api.h"

namespace plexrl::interpose {

/// A row of driver_api.def, numbered in its order. The number is for this build only: never store
/// it or send it elsewhere.
enum class Api : uint16_t {
#define API(symbol, since, cls, detail, params, args) symbol,
#include "interpose/driver_api.def"
#undef API
  kCount,
};

inline constexpr size_t kApiCount = static_cast<size_t>(Api::kCount);

/// The classes of driver_api.def, where each is explained.
enum class ApiClass : uint8_t {
  pass,
  through,
  gate,
  host,
  room,
  memory,
  query,
  track,
  refuse,
  took,
  gave,
  lookup,
};

/// What the table says of one function.
struct ApiRow {
  const char* name;  ///< exported symbol
  int since;         ///< CUDA version of this form, 12080 is 12.8
  ApiClass cls;
  const char* passes_because;  ///< class through: why it passes; else null
};

const ApiRow& row(Api api) noexcept;
inline const char* name(Api api) noexcept { return row(api).name; }

/// The row of an exported symbol, or Api::kCount. Takes no lock, allocates nothing.
Api find_api(std::string_view symbol) noexcept;

/// A function that this table doesn't know but that needs no attention (harmless.def).
bool is_harmless(std::string_view symbol) noexcept;

}  // namespace plexrl::interpose
