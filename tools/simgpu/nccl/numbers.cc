#include "tools/simgpu/nccl/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tools/simgpu/ptx/half.h"

namespace plexrl::simgpu::nccl {
namespace {

struct Half {
  std::uint16_t bits;
  static float widen(Half h) { return ptx::float_from_half(h.bits); }
  static Half narrow(float value) { return {ptx::half_from_float(value)}; }
};
struct Bfloat16 {
  std::uint16_t bits;
  static float widen(Bfloat16 b) { return ptx::float_from_bf16(b.bits); }
  static Bfloat16 narrow(float value) { return {ptx::bf16_from_float(value)}; }
};

template <typename T>
constexpr bool kIsNarrow = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>;
template <typename T>
constexpr bool kIsFloating = kIsNarrow<T> || std::is_floating_point_v<T>;

/// `f` of values in which the type's arithmetic can be done, rounded to the type.
template <typename T, typename F>
T in_type(F f, T a, T b) {
  if constexpr (kIsNarrow<T>) {
    return T::narrow(f(T::widen(a), T::widen(b)));
  } else if constexpr (std::is_floating_point_v<T>) {
    return f(a, b);
  } else {  // integers wrap around
    using Wide = std::make_unsigned_t<T>;
    return static_cast<T>(f(static_cast<Wide>(a), static_cast<Wide>(b)));
  }
}

template <typename T>
bool less(T a, T b) {
  if constexpr (kIsNarrow<T>) {
    return T::widen(a) < T::widen(b);
  } else {
    return a < b;
  }
}

template <typename T>
bool is_nan(T a) {
  if constexpr (kIsNarrow<T>) {
    return std::isnan(T::widen(a));
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::isnan(a);
  } else {
    return false;
  }
}

/// The other number where one is none, as fmin and fmax.
template <typename T>
T chosen(bool first, T a, T b) {
  if (is_nan(a)) return b;
  if (is_nan(b)) return a;
  return first ? a : b;
}

template <typename T>
T combined(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd:
      return in_type([](auto x, auto y) { return static_cast<decltype(x)>(x * y); }, a, b);
    case ncclMax:
      return chosen(less(b, a), a, b);
    case ncclMin:
      return chosen(!less(b, a), a, b);
    default:  // ncclSum, and ncclAvg before its division
      return in_type([](auto x, auto y) { return static_cast<decltype(x)>(x + y); }, a, b);
  }
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <typename T>
void prepare_as(const Reduction& how, std::byte* elements, std::size_t count) {
  T factor{};
  if (how.has_factor) {
    factor = load<T>(how.factor);
  } else if constexpr (kIsFloating<T>) {
    if (how.op != ncclAvg) return;
    if constexpr (kIsNarrow<T>) {
      factor = T::narrow(1.0f / static_cast<float>(how.ranks));
    } else {
      factor = T{1} / static_cast<T>(how.ranks);
    }
  } else {
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* const at = elements + i * sizeof(T);
    store(at, combined(ncclProd, load<T>(at), factor));
  }
}

template <typename T>
void combine_as(const Reduction& how, std::byte* sum, const std::byte* elements,
                std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* const at = sum + i * sizeof(T);
    store(at, combined(how.op, load<T>(at), load<T>(elements + i * sizeof(T))));
  }
}

template <typename T>
void finish_as(const Reduction& how, std::byte* sum, std::size_t count) {
  if constexpr (!kIsFloating<T>) {
    if (how.op != ncclAvg) return;
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* const at = sum + i * sizeof(T);
      store(at, static_cast<T>(load<T>(at) / static_cast<T>(how.ranks)));
    }
  }
}

/// Calls `f` with an element of the type.
template <typename F>
void for_type(ncclDataType_t type, F f) {
  switch (type) {
    case ncclInt8:
      return f(std::int8_t{});
    case ncclUint8:
      return f(std::uint8_t{});
    case ncclInt32:
      return f(std::int32_t{});
    case ncclUint32:
      return f(std::uint32_t{});
    case ncclInt64:
      return f(std::int64_t{});
    case ncclUint64:
      return f(std::uint64_t{});
    case ncclFloat16:
      return f(Half{});
    case ncclFloat32:
      return f(float{});
    case ncclFloat64:
      return f(double{});
    case ncclBfloat16:
      return f(Bfloat16{});
    default:
      return;
  }
}

}  // namespace

std::size_t element_bytes(ncclDataType_t type) {
  if (type == ncclFloat8e4m3 || type == ncclFloat8e5m2) return 1;
  std::size_t bytes = 0;
  for_type(type, [&](auto element) { bytes = sizeof element; });
  return bytes;
}

bool is_reducible(ncclDataType_t type) { return type <= ncclBfloat16; }

void prepare(const Reduction& how, std::byte* elements, std::size_t count) {
  for_type(how.type, [&](auto e) { prepare_as<decltype(e)>(how, elements, count); });
}

void combine(const Reduction& how, std::byte* sum, const std::byte* elements, std::size_t count) {
  for_type(how.type, [&](auto e) { combine_as<decltype(e)>(how, sum, elements, count); });
}

void finish(const Reduction& how, std::byte* sum, std::size_t count) {
  for_type(how.type, [&](auto e) { finish_as<decltype(e)>(how, sum, count); });
}

}  // namespace plexrl::simgpu::nccl
