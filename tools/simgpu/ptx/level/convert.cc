#include <limits>

#include "tools/simgpu/ptx/level/level.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

/// The low bits of S as an N, extended by N's signedness to R.
template <typename N, typename S, typename R>
PLEXRL_INLINE R extend_value(S a) {
  return static_cast<R>(static_cast<N>(a));
}

template <typename N>
OpFn extend_as(int from, int to) {
  switch (from * 16 + to) {
    case 0x22:
      return unary<U16, U16, extend_value<N, U16, U16>>;
    case 0x24:
      return unary<U32, U16, extend_value<N, U16, U32>>;
    case 0x28:
      return unary<U64, U16, extend_value<N, U16, U64>>;
    case 0x42:
      return unary<U16, U32, extend_value<N, U32, U16>>;
    case 0x44:
      return unary<U32, U32, extend_value<N, U32, U32>>;
    case 0x48:
      return unary<U64, U32, extend_value<N, U32, U64>>;
    case 0x82:
      return unary<U16, U64, extend_value<N, U64, U16>>;
    case 0x84:
      return unary<U32, U64, extend_value<N, U64, U32>>;
    case 0x88:
      return unary<U64, U64, extend_value<N, U64, U64>>;
    default:
      return nullptr;
  }
}

template <typename W, typename N>
PLEXRL_INLINE U64 clamp_value(W a) {
  using Limits = std::numeric_limits<N>;
  if constexpr (std::is_signed_v<W>) {
    if (a < 0 && (!std::is_signed_v<N> || a < static_cast<S64>(Limits::min())))
      return static_cast<U64>(Limits::min());
    if (a > 0 && static_cast<U64>(a) > static_cast<U64>(Limits::max()))
      return static_cast<U64>(Limits::max());
  } else {
    if (a > static_cast<U64>(Limits::max())) return static_cast<U64>(Limits::max());
  }
  return static_cast<U64>(a);
}

template <typename N>
OpFn clamp_as(bool is_signed_source) {
  return is_signed_source ? unary<U64, S64, clamp_value<S64, N>>
                          : unary<U64, U64, clamp_value<U64, N>>;
}

/// Cut towards zero, saturated; a NaN gives 0.
template <typename T, typename F>
PLEXRL_INLINE T to_integer(F a) {
  constexpr F kLow = static_cast<F>(std::numeric_limits<T>::min());
  // The first value that is too big: a power of two, exact in F.
  constexpr F kHigh = static_cast<F>(static_cast<T>(T(1) << (8 * sizeof(T) - 2))) *
                      (std::is_signed_v<T> ? F(2) : F(4));
  if (!(a >= kLow)) return a != a ? T(0) : std::numeric_limits<T>::min();
  if (a >= kHigh) return std::numeric_limits<T>::max();
  return static_cast<T>(a);
}
PLEXRL_INLINE S32 to_s32(float a) {  // in a form that vectorises
  const float limited = a < -2147483648.0f ? -2147483648.0f : a;
  const S32 cut = static_cast<S32>(limited < 2147483648.0f ? limited : 0.0f);
  const S32 big = a >= 2147483648.0f ? INT32_MAX : 0;
  return cut + big;
}

template <typename F>
PLEXRL_INLINE F round_nearest(F a);
template <>
PLEXRL_INLINE float round_nearest(float a) {
  const float magnitude = a < 0 ? -a : a;
  const float rounded = (magnitude + 8388608.0f) - 8388608.0f;
  const float r = magnitude < 8388608.0f ? rounded : magnitude;
  return std::bit_cast<float>(std::bit_cast<U32>(r) | (std::bit_cast<U32>(a) & 0x80000000u));
}
template <>
PLEXRL_INLINE double round_nearest(double a) {
  const double magnitude = a < 0 ? -a : a;
  const double rounded = (magnitude + 4503599627370496.0) - 4503599627370496.0;
  const double r = magnitude < 4503599627370496.0 ? rounded : magnitude;
  return std::bit_cast<double>(std::bit_cast<U64>(r) |
                               (std::bit_cast<U64>(a) & 0x8000000000000000ull));
}
template <typename F>
PLEXRL_INLINE F with_sign(F r, F a) {
  if constexpr (sizeof(F) == 4) {
    return std::bit_cast<float>(std::bit_cast<U32>(r) | (std::bit_cast<U32>(a) & 0x80000000u));
  } else {
    return std::bit_cast<double>(std::bit_cast<U64>(r) |
                                 (std::bit_cast<U64>(a) & 0x8000000000000000ull));
  }
}
template <typename F>
PLEXRL_INLINE F round_down(F a) {
  const F r = round_nearest<F>(a);
  const F s = r > a ? r - F(1) : r;
  return s == 0 ? with_sign<F>(F(0), a) : s;
}
template <typename F>
PLEXRL_INLINE F round_up(F a) {
  const F r = round_nearest<F>(a);
  const F s = r < a ? r + F(1) : r;
  return s == 0 ? with_sign<F>(F(0), a) : s;
}
template <typename F>
PLEXRL_INLINE F round_zero(F a) {
  const F magnitude = a < 0 ? -a : a;
  const F r = round_nearest<F>(magnitude);
  return with_sign<F>(r > magnitude ? r - F(1) : r, a);
}

template <typename F>
OpFn integral_act(Act act) {
  switch (act) {
    case Act::kRoundNearest:
      return unary<F, F, round_nearest<F>>;
    case Act::kRoundDown:
      return unary<F, F, round_down<F>>;
    case Act::kRoundUp:
      return unary<F, F, round_up<F>>;
    case Act::kRoundZero:
      return unary<F, F, round_zero<F>>;
    case Act::kToU32:
      return unary<U32, F, to_integer<U32, F>>;
    case Act::kToS64:
      return unary<S64, F, to_integer<S64, F>>;
    case Act::kToU64:
      return unary<U64, F, to_integer<U64, F>>;
    default:
      return nullptr;
  }
}

template <typename D, typename S>
PLEXRL_INLINE D cast(S a) {
  return static_cast<D>(a);
}

/// Rounds in a given direction without touching the CPU's rounding mode: round to nearest, then
/// correct by one step.
template <typename S, Rounding kRounding>
PLEXRL_INLINE float directed_float(S a) {
  const float near = static_cast<float>(a);
  if (!(near - near == 0)) {
    // Overflow of a finite number: the largest float, or infinity in the rounding's direction.
    const bool was_finite =
        std::is_integral_v<S> || static_cast<double>(a) - static_cast<double>(a) == 0;
    if (!was_finite) return near;
    const bool keep =
        (near > 0 && kRounding == Rounding::kUp) || (near < 0 && kRounding == Rounding::kDown);
    return keep       ? near
           : near > 0 ? std::numeric_limits<float>::max()
                      : -std::numeric_limits<float>::max();
  }
  int compare;  // of the rounded value with the true one
  if constexpr (std::is_integral_v<S>) {
    const auto back = static_cast<__int128>(near);
    compare = back > static_cast<__int128>(a) ? 1 : back < static_cast<__int128>(a) ? -1 : 0;
  } else {
    compare = static_cast<double>(near) > a ? 1 : static_cast<double>(near) < a ? -1 : 0;
  }
  bool step_down = false, step_up = false;
  if (kRounding == Rounding::kDown || (kRounding == Rounding::kZero && a > 0))
    step_down = compare > 0;
  if (kRounding == Rounding::kUp || (kRounding == Rounding::kZero && a < 0)) step_up = compare < 0;
  if (!step_down && !step_up) return near;
  if (near == 0) return step_up ? 0x1p-149f : -0x1p-149f;
  const U32 bits = std::bit_cast<U32>(near);
  return std::bit_cast<float>((near > 0) == step_up ? bits + 1 : bits - 1);
}
template <typename S, Rounding kRounding>
PLEXRL_INLINE double directed_double(S a) {
  const double near = static_cast<double>(a);
  const auto back = static_cast<__int128>(near);
  const auto exact = static_cast<__int128>(a);
  bool step_down = false, step_up = false;
  if (kRounding == Rounding::kDown || (kRounding == Rounding::kZero && a > 0))
    step_down = back > exact;
  if (kRounding == Rounding::kUp || (kRounding == Rounding::kZero && exact < 0))
    step_up = back < exact;
  const U64 bits = std::bit_cast<U64>(near);
  if (step_up) return std::bit_cast<double>(near > 0 ? bits + 1 : bits - 1);
  if (step_down) return std::bit_cast<double>(near > 0 ? bits - 1 : bits + 1);
  return near;
}

template <Rounding kRounding>
PLEXRL_INLINE U16 half_of_float(float a) {
  return half_from_double(static_cast<double>(a), kRounding);
}
template <Rounding kRounding>
PLEXRL_INLINE U16 half_of_double(double a) {
  return half_from_double(a, kRounding);
}
PLEXRL_INLINE U16 bf16_zero(float a) {
  return a != a ? U16(0x7fff) : static_cast<U16>(std::bit_cast<U32>(a) >> 16);
}
PLEXRL_INLINE double double_of_half(U16 a) { return static_cast<double>(float_from_half(a)); }

template <typename S>
OpFn to_float(Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearestEven:
      return unary<float, S, cast<float, S>>;
    case Rounding::kZero:
      return unary<float, S, directed_float<S, Rounding::kZero>>;
    case Rounding::kDown:
      return unary<float, S, directed_float<S, Rounding::kDown>>;
    case Rounding::kUp:
      return unary<float, S, directed_float<S, Rounding::kUp>>;
  }
  return nullptr;
}

template <typename S>
OpFn to_double(Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearestEven:
      return unary<double, S, cast<double, S>>;
    case Rounding::kZero:
      return unary<double, S, directed_double<S, Rounding::kZero>>;
    case Rounding::kDown:
      return unary<double, S, directed_double<S, Rounding::kDown>>;
    case Rounding::kUp:
      return unary<double, S, directed_double<S, Rounding::kUp>>;
  }
  return nullptr;
}

template <Rounding kRounding>
OpFn to_half(Type from) {
  if (from == Type::kF64) return unary<U16, double, half_of_double<kRounding>>;
  if (from != Type::kF32) return nullptr;
  if constexpr (kRounding == Rounding::kNearestEven) return unary<U16, float, half_from_float>;
  return unary<U16, float, half_of_float<kRounding>>;
}

}  // namespace

OpFn extend(Type from, int source_width, int result_width) {
  switch (from) {
    case Type::kS8:
      return extend_as<std::int8_t>(source_width, result_width);
    case Type::kS16:
      return extend_as<std::int16_t>(source_width, result_width);
    case Type::kS32:
      return extend_as<std::int32_t>(source_width, result_width);
    default:
      break;
  }
  switch (bytes_of(from)) {
    case 1:
      return extend_as<std::uint8_t>(source_width, result_width);
    case 2:
      return extend_as<std::uint16_t>(source_width, result_width);
    case 4:
      return extend_as<std::uint32_t>(source_width, result_width);
    default:
      return extend_as<std::uint64_t>(source_width, result_width);
  }
}

OpFn clamp(bool is_signed_source, Type to) {
  switch (to) {
    case Type::kS8:
      return clamp_as<std::int8_t>(is_signed_source);
    case Type::kU8:
      return clamp_as<std::uint8_t>(is_signed_source);
    case Type::kS16:
      return clamp_as<std::int16_t>(is_signed_source);
    case Type::kU16:
      return clamp_as<std::uint16_t>(is_signed_source);
    case Type::kS32:
      return clamp_as<std::int32_t>(is_signed_source);
    case Type::kU32:
      return clamp_as<std::uint32_t>(is_signed_source);
    case Type::kS64:
      return clamp_as<std::int64_t>(is_signed_source);
    case Type::kU64:
      return clamp_as<std::uint64_t>(is_signed_source);
    default:
      return nullptr;
  }
}

OpFn convert(Type to, Type from, Rounding rounding) {
  if (to == Type::kF32) {
    switch (from) {
      case Type::kS32:
        return to_float<S32>(rounding);
      case Type::kU32:
        return to_float<U32>(rounding);
      case Type::kS64:
        return to_float<S64>(rounding);
      case Type::kU64:
        return to_float<U64>(rounding);
      case Type::kF64:
        return to_float<double>(rounding);
      case Type::kF16:
        return unary<float, U16, float_from_half>;
      case Type::kBf16:
        return unary<float, U16, float_from_bf16>;
      default:
        return nullptr;
    }
  }
  if (to == Type::kF64) {
    switch (from) {
      case Type::kS32:
        return unary<double, S32, cast<double, S32>>;
      case Type::kU32:
        return unary<double, U32, cast<double, U32>>;
      case Type::kS64:
        return to_double<S64>(rounding);
      case Type::kU64:
        return to_double<U64>(rounding);
      case Type::kF32:
        return unary<double, float, cast<double, float>>;
      case Type::kF16:
        return unary<double, U16, double_of_half>;
      default:
        return nullptr;
    }
  }
  if (to == Type::kF16) {
    switch (rounding) {
      case Rounding::kNearestEven:
        return to_half<Rounding::kNearestEven>(from);
      case Rounding::kZero:
        return to_half<Rounding::kZero>(from);
      case Rounding::kDown:
        return to_half<Rounding::kDown>(from);
      case Rounding::kUp:
        return to_half<Rounding::kUp>(from);
    }
  }
  if (to == Type::kBf16 && from == Type::kF32) {
    if (rounding == Rounding::kNearestEven) return unary<U16, float, bf16_from_float>;
    if (rounding == Rounding::kZero) return unary<U16, float, bf16_zero>;
  }
  return nullptr;
}

OpFn integral(Act act, Type from) {
  if (from == Type::kF32) {
    if (act == Act::kToS32) return unary<S32, float, to_s32>;
    return integral_act<float>(act);
  }
  if (from == Type::kF64) {
    if (act == Act::kToS32) return unary<S32, double, to_integer<S32, double>>;
    return integral_act<double>(act);
  }
  return nullptr;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
